"""Which shipped function makes a request: the nearest one that is not of the stores."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

from tests.explore.requests import Request
from tests.explore.site import Ask

STORES = "coldstream.store.", "coldstream.streams.wal.s3_store", "coldstream.retry", "coldstream.flow."
"""Modules that ask for others."""


class Asked(NamedTuple):
    """A request, and the function that makes it; `operation` counts the calls of shipped code that an actor makes."""

    place: str
    request: Request
    operation: int = 0
    answer: Any = None

    @property
    def name(self) -> str:
        """What the guards are named after."""
        return f"{self.request.method} in {self.place}"


def place() -> str:
    """Return the module and name of the shipped function that is asking."""
    frame = sys._getframe(1)
    found = "nowhere"
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("coldstream."):
            found = f"{module.removeprefix('coldstream.')}.{frame.f_code.co_qualname.replace('.<locals>', '')}"
            if not module.startswith(STORES):
                return found
        frame = frame.f_back  # type: ignore[assignment]
    return found


def entered() -> FrameType | None:
    """Return the frame of the call by which an actor came into shipped code, None if it is not in it."""
    frame: FrameType | None = sys._getframe(1)
    found = None
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("coldstream."):
            found = frame
        frame = frame.f_back
    return found


class Listening:
    """Takes down what an actor asks, and changes nothing."""

    def __init__(self, ask: Ask, heard: list[Asked]) -> None:
        self._ask, self._heard = ask, heard
        self._entered: list[FrameType | None] = []

    def __call__(self, request: Request) -> Any:
        call = entered()
        if not self._entered or self._entered[-1] is not call:
            self._entered.append(call)  # kept, so that no later call has its place in memory
        answer = None
        try:
            answer = self._ask(request)
        finally:
            self._heard.append(Asked(place(), request, len(self._entered), answer))
        return answer

    def finish(self) -> None:
        """Do what is left."""
