"""The conditions of writes of state items, and their removal: the revision that was read, or that nothing is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from tests.explore.call_sites import Asked, place
from tests.explore.requests import Request
from tests.explore.site import Ask

LOOSELY = "loosely"


def conditions_of(asked: Asked) -> Iterator[str]:
    """Yield what a request asks of state items before it writes them, by name.

    The deletion of an item at its first revision asks for nothing but that it is there.
    """
    for item in _items(asked.request):
        if asked.request.method != "delete_state" or item.revision > 1:
            yield _condition(asked, item)


class Loosely:
    """Leaves one condition out of the writes that one function makes."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask, self._name = ask, name

    def __call__(self, request: Request) -> Any:
        loosened: tuple[StateItem, ...] = ()
        if request.method == LOOSELY:  # by another one
            method, loosened, *items = request.args  # type: ignore[assignment]
            request = Request(request.part, str(method), tuple(items))
        asked = Asked(place(), request)
        loose = loosened + tuple(item for item in _items(request) if _condition(asked, item) == self._name)
        if loose:
            request = Request(request.part, LOOSELY, (request.method, loose, *request.args))
        return self._ask(request)

    def finish(self) -> None:
        """Do what is left."""


def let_loosely(patch: pytest.MonkeyPatch) -> None:
    """Have the table write some items whatever is there."""

    def loosely(self: MemoryTable, method: str, loose: tuple[StateItem, ...], *items: StateItem) -> None:
        strict = self._check_state

        def check(item: StateItem, revision: int) -> None:
            if item not in loose:
                strict(item, revision)
            elif method == "delete_state":
                self._states.setdefault((item.partition, item.key), item)  # what is gone is deleted as well

        self._check_state = check  # type: ignore[method-assign]
        try:
            getattr(self, method)(*items)
        finally:
            del self._check_state

    patch.setattr(MemoryTable, LOOSELY, loosely, raising=False)


def _items(request: Request) -> tuple[StateItem, ...]:
    is_write = request.method in {"put_state", "add_state", "delete_state"}
    return request.args if is_write else ()  # type: ignore[return-value]


def _condition(asked: Asked, item: StateItem) -> str:
    is_new = item.revision == 1 and asked.request.method != "delete_state"
    what = f"absence of #{item.partition.split('#')[1]}" if is_new else f"revision of #{item.partition.split('#')[1]}"
    return f"{what} in {asked.name}"
