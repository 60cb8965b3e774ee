"""The agent of one node: shipped code beside a replica's data directory, which is killed and starts again."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.disk.pins import StreamPins
from coldstream.agent.disk.stream_disk import StreamDisk
from coldstream.agent.disk_guard import DiskGuard
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.agent.services import Services
from coldstream.agent.stream_file import StreamFile
from coldstream.agent.upload_slots import UploadSlots
from coldstream.errors import UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from tests.simulation.cluster import ClusterReplica
from tests.simulation.stores import Trouble, Troubled
from tests.simulation.virtual import DRIFT_S

SCAN_S = 300.0
GUARD_S = 60.0
"""How often an agent looks how full its disk is. Shipped agents do every two seconds."""


class SimulatedAgent:
    """An agent. `trouble` is what happens to its requests to AWS; `drift_s` is how wrong its host's clock is.

    `room_bytes` is what its disk has room for beside the broker's files; None if there is always room.
    """

    def __init__(
        self, replica: ClusterReplica, state: Path, stores: tuple[Any, Any, Any, Keys], trouble: Trouble, every_ms: Any
    ) -> None:
        self.replica = replica
        self.trouble = trouble
        self.drift_s = 0.0
        self.room_bytes: int | None = None
        self.state = state
        self._every_ms = every_ms
        self._table, self._objects, self._bus, self._keys = stores
        self._archiver: StreamArchiver | None = None
        self._archive: ArchiveClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._guard: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._task is not None

    @property
    def pins(self) -> Path:
        """Where its pins are."""
        return self.state / "pins" / self.replica.incarnation

    @property
    def has_told_all(self) -> bool:
        """Whether it knows of no loss that is still to be announced."""
        one = self._archiver
        return one is None or not (one.losses.are_suspected or one.identity.lost)

    def start(self) -> None:
        """Start its process, if it is not there."""
        if self._task is None:
            DRIFT_S.set(self.drift_s)
            self._archiver = self._made()
            self._task = asyncio.create_task(self._archiver.run())
            if self.room_bytes is not None:
                self._guard = asyncio.create_task(self._guard_disk(self._archiver))
            DRIFT_S.set(0.0)

    async def kill(self) -> None:
        """Kill its process; what it has written stays."""
        task, self._task = self._task, None
        if task is not None:
            tasks = [task] if self._guard is None else [task, self._guard]
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._guard = None
            assert self._archive is not None
            self._archive.stop()
            self._archiver = None

    async def lose_disk(self) -> None:
        """Kill its process, and have nothing left of what it has written."""
        await self.kill()
        shutil.rmtree(self.state, ignore_errors=True)

    def free_bytes(self) -> int:
        """Return how much of its disk is free."""
        assert self.room_bytes is not None
        return self.room_bytes - StreamPins(self.pins, self.replica.directory).space().orphaned_bytes

    def wake(self) -> None:
        """Tell it that a segment has rolled, as its watch of the directory does."""
        if self._archiver is not None:
            self._archiver.wake()

    def check(self) -> None:
        """Raise what ended it, if anything did."""
        if self._task is not None and self._task.done():
            self._task.result()
            raise AssertionError(f"the agent of node {self.replica.number} takes the stream for gone")
        if self._guard is not None and self._guard.done():
            self._guard.result()

    async def _guard_disk(self, archiver: StreamArchiver) -> None:
        """Keep a byte of the disk free, as `--release-pins-below` does."""
        guard = DiskGuard(self.state, 1, {archiver.incarnation: archiver}, f"node-{self.replica.number}")
        while True:
            await asyncio.sleep(GUARD_S)
            with suppress(UnavailableError):
                await guard.release_pins()

    def _made(self) -> StreamArchiver:
        self._archive = ArchiveClient(
            Troubled(self._table, self.trouble),
            Troubled(self._objects, self.trouble),
            Troubled(self._bus, self.trouble),
            self._keys,
            BandwidthLimit(None),
        )
        services = Services(
            self._archive,
            self.replica,
            StreamListing(None),
            UploadSlots(2),
            Rules(),
            AgentMetrics(),
            SCAN_S,
            self._every_ms,
            f"node-{self.replica.number}",
        )
        incarnation = Incarnation(self.replica.incarnation)
        disk = StreamDisk(StreamPins(self.pins, self.replica.directory), self._every_ms)
        file = StreamFile(self.state / "streams", incarnation)
        return StreamArchiver(incarnation, disk, file, services, is_backfill=False)
