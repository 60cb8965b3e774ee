"""Which shipped function makes a request: the nearest one that is not of the stores."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from tests.explore.requests import Request
from tests.explore.site import Ask


class Asked(NamedTuple):
    """A request, and the function that makes it."""

    place: str
    request: Request

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
            if not module.startswith(("coldstream.store.", "coldstream.retry", "coldstream.flow.")):
                return found
        frame = frame.f_back  # type: ignore[assignment]
    return found


class Listening:
    """Takes down what an actor asks, and changes nothing."""

    def __init__(self, ask: Ask, heard: list[Asked]) -> None:
        self._ask, self._heard = ask, heard

    def __call__(self, request: Request) -> Any:
        self._heard.append(Asked(place(), request))
        return self._ask(request)

    def finish(self) -> None:
        """Do what is left."""
