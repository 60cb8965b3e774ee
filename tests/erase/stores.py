"""The stores of an erasure in memory, and the sweep that follows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.erase.report import ErasureReport
from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.store.control import ControlObjects
from coldstream.store.ports import BucketCapabilities, ManifestTable, ObjectStore
from coldstream.units import TimestampMs
from tests.erase.archived import KEYS, MessageArchive
from tests.support.archive import NOW

GRACE_MS = 7_200_000


@dataclass
class SteppedClock:
    """A clock that a test moves."""

    at: int = NOW

    def __call__(self) -> TimestampMs:
        return TimestampMs(self.at)


@dataclass
class Erasing:
    """An archive in memory, and what erases in it."""

    archive: MessageArchive
    clock: SteppedClock = field(default_factory=SteppedClock)
    bucket: BucketCapabilities = field(default_factory=BucketCapabilities)

    def __post_init__(self) -> None:
        self.archive.objects.clock = self.clock

    def stores(self, table: ManifestTable | None = None, objects: ObjectStore | None = None) -> LifecycleStores:
        objects = objects or self.archive.objects
        return LifecycleStores(
            table=table or self.archive.table,
            objects=objects,
            keys=KEYS,
            control=ControlObjects(objects, KEYS),
            bucket=self.bucket,
            now=self.clock,
            grace_ms=GRACE_MS,
        )

    def erase(
        self,
        selection: Selection,
        *,
        stores: LifecycleStores | None = None,
        with_copies: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ErasureReport:
        """Begin and run an erasure."""
        eraser = Eraser(stores or self.stores(), should_stop=should_stop)
        erasure, _, _ = eraser.begin(
            self.archive.stream, selection, reason="ticket 17", by="alice@host", with_copies=with_copies
        )
        return eraser.run(self.archive.stream, erasure, selection)
