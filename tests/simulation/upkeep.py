"""Maintenance of the archive, by workers that die: compaction, retention, sweep, each begun again by another."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from coldstream.compact.options import CompactOptions
from coldstream.compact.run import Compactor
from coldstream.compact.task import write_task
from coldstream.errors import ColdstreamError
from coldstream.lifecycle.sweep import sweep
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.entry import Encoding
from coldstream.units import Offset
from tests.explore.base import GRACE_MS, INCARNATION, KEYS, STREAM
from tests.simulation.stores import Trouble, Troubled
from tests.simulation.watched import SimulatedStores
from tests.support.compacting import Killed


class Upkeep:
    """Who maintains the archive, at the same stores as all others."""

    def __init__(
        self, rng: random.Random, stores: SimulatedStores, trouble: Trouble, say: Callable[[str], None]
    ) -> None:
        self.rng = rng
        self.done: dict[str, int] = {}
        self._stores = stores
        self._table = Troubled(stores.table, trouble)
        self._objects = Troubled(stores.objects, trouble)
        self._say = say

    def compact(self) -> None:
        """Compact what is there, and sweep."""
        target = self.rng.choice([3_000, 10_000])
        options = CompactOptions(0, target, self.rng.choice(list(Encoding)), 1, grace_ms=GRACE_MS)

        def run() -> None:
            stores = self._stores.lifecycle(self._table, self._objects)
            compactor = Compactor(
                self._table,
                self._objects,
                write=lambda task: write_task(self._objects, KEYS, task),
                at_once=1,
                now=stores.now,
                sweep=lambda incarnation: sweep(stores, incarnation),
            )
            compactor.run([STREAM], options)

        self._as_worker("compact", run)

    def sweep(self) -> None:
        """Delete what is due."""
        self._as_worker("sweep", lambda: sweep(self._stores.lifecycle(self._table, self._objects), INCARNATION))

    def remove(self, offset: Offset) -> None:
        """Remove all that ends at or before an offset."""

        def run() -> None:
            stores = self._stores.lifecycle(self._table, self._objects)
            truncate(stores, INCARNATION, up_to_offset(offset), why="a policy", by="retention")

        self._as_worker(f"remove below {offset}", run)

    def _as_worker(self, name: str, work: Callable[[], object]) -> None:
        outcome = "given up"
        with suppress(Killed, ColdstreamError):
            work()
            outcome = "done"
        kind = name.partition(" ")[0] + f" {outcome}"
        self.done[kind] = self.done.get(kind, 0) + 1
        self._say(f"{name}: {outcome}")
