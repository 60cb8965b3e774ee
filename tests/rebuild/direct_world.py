"""Archives of direct streams with a life behind them, by chance. What they append comes as any fragment does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coldstream.manifest.appender import Appender, WalKind, WalPlace
from coldstream.manifest.appending import appender_in, plan_close, plan_create, plan_open, plan_recovered, plan_trim
from coldstream.manifest.change import Change
from coldstream.store.direct_names import DirectName, add_name, find_name, remove_name
from coldstream.units import Offset
from tests.rebuild.world import RandomArchive


class RandomDirectArchive(RandomArchive):
    """An archive of one direct stream. `dies` is how often a process ends after a change, and before its note."""

    def __init__(self, seed: int, directory: Path, *, dies: float = 0, versioned: bool = False) -> None:
        super().__init__(seed, directory, versioned=versioned)
        self.dies = dies
        self.wals = 0
        created = plan_create(self.stream, self.now, first=Offset(0), properties={"owner": "größe"})
        add_name(self.table, DirectName.of(created.head))
        self.control.write_stream(self.stream)
        self.control.write_direct(created.head)
        self.table.apply(created)

    @property
    def appender(self) -> Appender:
        """What the head says of appending."""
        return appender_in(self.head)

    def works(self) -> list[tuple[int, Callable[[], None]]]:
        """List what may happen, each with how often."""
        return [*super().works(), (5, self.open), (2, self.recover), (2, self.close), (1, self.trim)]

    def open(self) -> None:
        """Open the stream, in a write-ahead log of its own."""
        if self.appender.is_sealed or len(self.appender.openings) > 8:
            raise IndexError
        self.wals += 1
        kind = self.rng.choice(list(WalKind))
        opened = plan_open(self.head, WalPlace(kind, f"host-{self.rng.randrange(3)}", self.wals), self.now)
        self.table.apply(opened)
        if self.rng.random() >= self.dies:
            self.control.write_opening(self.stream, appender_in(opened.head).openings[-1])

    def recover(self) -> None:
        """Forget the openings before the last."""
        self._change(plan_recovered(self.head, self.appender.epoch, self.now))

    def close(self) -> None:
        """Close the stream; now and then for good."""
        is_sealed = self.rng.random() < 0.3
        self._change(plan_close(self.head, self.appender.epoch, self.now, is_sealed=is_sealed))

    def trim(self) -> None:
        """Trim the stream."""
        to = self.appender.start + self.rng.randrange(100)
        change = plan_trim(self.head, self.appender.epoch, Offset(to), self.now)
        if change is not None:
            self._change(change)

    def _change(self, change: Change) -> None:
        self.table.apply(change)
        if self.rng.random() >= self.dies:
            self.control.write_direct(change.head)

    def delete(self) -> None:
        """Delete the stream; purge it, or undo that, or neither."""
        super().delete()
        if self.head.is_deleted:
            remove_name(self.table, self.stream)

    @property
    def name(self) -> DirectName | None:
        """What has the stream's name."""
        return find_name(self.table, self.stream.vhost, self.stream.name)
