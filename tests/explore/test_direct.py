"""The promises of direct streams can be broken, and then the explorer says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coldstream.streams.wal.seal import find_end
from tests.explore.direct_promises import Promises
from tests.explore.direct_world import direct_world
from tests.explore.machine import Machine, Violation
from tests.explore.nearest import search_nearest
from tests.explore.patches import reproducible
from tests.support.compacting import Inline


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with reproducible() as patch:
        yield patch


def _end_unsealed(store: Any, place: Any) -> int:
    return find_end(store, place, Inline()).sequence


def _nothing(found: Any, tail: Any, *, may_lack: bool) -> Iterator[Any]:
    return iter(())


BROKEN = {
    "the seal": ("coldstream.streams.wals.seal", _end_unsealed, "append+closing", "0c0l0r"),
    "the logs in a recovery": ("coldstream.streams.recovery.continuing", _nothing, "append", "1c0l0r"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_without_it_a_promise_is_broken(name: str, patch: pytest.MonkeyPatch) -> None:
    target, instead, names, faults = BROKEN[name]
    patch.setattr(target, instead)
    machine = Machine(direct_world(names.split("+"), faults=faults))
    Promises(machine)
    with pytest.raises(Violation, match="invariant 13"):
        search_nearest(machine)
    machine.programs.close()
