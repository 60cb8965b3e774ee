"""One stream's archiver, beside a node and an archive in memory: what the agent's tests drive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent import archiver, losses, slice_delivery
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.disk import file_marks
from coldstream.agent.disk.pins import StreamPins, segment_files
from coldstream.agent.disk.stream_disk import StreamDisk
from coldstream.agent.monitor.exposition_format import ExpositionFormat
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.agent.services import Services
from coldstream.agent.stream_file import StreamFile
from coldstream.agent.upload_slots import UploadSlots
from coldstream.archive.borders import QuietSpans
from coldstream.archive.events import event_of
from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.errors import UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.format.chunk import iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, now_ms
from tests.support.node import Node, NodeStream
from tests.support.replica import Replica
from tests.support.segments import MemoryArchive

FRAGMENT_BYTES = 8_000
DEADLINE_S = 10
SCAN_S = 0.05


def make_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have archivers wait less."""
    quickened = {archiver: ("FIRST_DELAY_S", "MAX_DELAY_S"), slice_delivery: ("FIRST_POLL_S", "MAX_POLL_S")}
    for module, names in quickened.items():
        for name, value_s in zip(names, (0.01, 0.04), strict=True):
            monkeypatch.setattr(module, name, value_s)
    monkeypatch.setattr(losses, "SUSPICION_S", 0.1)
    # Several ticks of the kernel's clock: streams grow quiet while a test looks at them.
    monkeypatch.setattr(file_marks, "UNSURE_NS", 50_000_000)


class Bus:
    """An event bus whose events are handled later, as by a function and its queue; while `is_down` it refuses them."""

    def __init__(self, archive: MemoryArchive) -> None:
        self.archive = archive
        self.waiting: list[str] = []
        self.announced: list[tuple[int, int]] = []
        self.lost: list[tuple[int, int, str]] = []
        self.quarantined: list[str] = []
        self.is_down = False

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        if self.is_down:
            raise UnavailableError("the bus is down")
        event = json.dumps({"source": source, "detail-type": detail_type, "detail": json.loads(detail)})
        parsed = json.loads(detail)
        if detail_type == "Segment Lost":
            lost = parsed["lost"]
            self.lost.append((lost["first_offset"], lost["next_offset"], parsed["reason"]))
            self.waiting.append(event)
            return
        self.announced.append((parsed["segment"]["first_offset"], parsed["segment"]["next_offset"]))
        self.waiting.append(event)

    def handle(self) -> None:
        while self.waiting:
            event = event_of(self.waiting.pop(0))
            if isinstance(event, SegmentLost):
                record_loss(self.archive.table, self.archive.uploader.control, event, now_ms)
                continue
            reason = self.archive.uploader.upload(event).reason
            if reason is not None:
                self.quarantined.append(reason)


class Rig:
    """An archiver of one stream, beside a node and an archive."""

    def __init__(
        self, tmp_path: Path, node: Node | Replica, stream: NodeStream | Replica, *, every_ms: int | None = None
    ) -> None:
        self.tmp_path = tmp_path
        self.node = node
        self.stream = stream
        self.archive = MemoryArchive(FRAGMENT_BYTES)
        self.bus = Bus(self.archive)
        self.metrics = AgentMetrics()
        self.rules = Rules()
        self.every_ms = every_ms
        self.quiet: QuietSpans | None = None
        self.functions_run = True
        self.agents_table: Any = None
        self.agents_objects: Any = None

    def scrape(self) -> bytes:
        """Return the metrics as Prometheus gets them."""
        return self.metrics.text(ExpositionFormat.wanted(""))

    @property
    def pins(self) -> list[int]:
        return [int(offset) for offset in segment_files(self.tmp_path / "state/pins" / self.stream.incarnation)]

    @property
    def archived(self) -> list[tuple[int, int]]:
        entries = self.archive.table.log_from_offset(Incarnation(self.stream.incarnation), Offset(0), 10_000).entries
        return [(entry.first_offset, entry.next_offset) for entry in entries]

    @property
    def archived_to(self) -> int:
        """The tail of the archive, which must have no hole."""
        reached = 0
        for first, after in self.archived:
            assert first == reached, f"a hole before {first}"
            reached = after
        return reached

    def client(self) -> ArchiveClient:
        """Return the archive as the agent has it."""
        table, objects = self.agents_table or self.archive.table, self.agents_objects or self.archive.objects
        return ArchiveClient(table, objects, self.bus, self.archive.keys, BandwidthLimit(None))

    def new_archiver(self) -> StreamArchiver:
        services = Services(
            self.client(),
            self.node,
            StreamListing(None),
            UploadSlots(2),
            self.rules,
            self.metrics,
            SCAN_S,
            self.every_ms,
            "here",
            quiet=self.quiet,
        )
        incarnation = Incarnation(self.stream.incarnation)
        pins = StreamPins(self.tmp_path / "state/pins" / incarnation, self.stream.directory)
        file = StreamFile(self.tmp_path / "state/streams", incarnation)
        return StreamArchiver(
            incarnation, StreamDisk(pins, self.every_ms, self.quiet), file, services, is_backfill=False
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[StreamArchiver]:
        archiver = self.new_archiver()
        tasks = [asyncio.create_task(work) for work in (archiver.run(), self._functions(), self._turns(archiver))]
        try:
            yield archiver
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _functions(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            if self.functions_run:
                self.bus.handle()

    async def _turns(self, archiver: StreamArchiver) -> None:
        """Do what the agent does beside its archivers."""
        while True:
            await asyncio.sleep(0.02)
            archiver.wake_if_changed()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  what is waited for has no event
                await asyncio.sleep(0.01)

    async def catches_up(self) -> None:
        await self.until(lambda: self.archived_to == int(self.stream.segments[-1].stem) and not self.pins[:-1])


async def losses_are_announced(rig: Rig, archiver: StreamArchiver) -> None:
    """Wait until everything that is lost is announced."""
    await rig.until(lambda: not archiver.losses.are_suspected and not archiver.identity.lost)


def chunks_archived(rig: Rig) -> list[object]:
    """Return the headers of all archived chunks, in order."""
    entries = rig.archive.table.log_from_offset(Incarnation(rig.stream.incarnation), Offset(0), 10_000).entries
    found: list[object] = []
    for entry in entries:
        body = rig.archive.body(entry.key)[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes]
        found += [chunk.header for chunk in iter_chunks(body, source=entry.key, position=SEGMENT_HEADER_BYTES)]
    return found


def committed(stream: Replica, next_offset: int) -> list[object]:
    return [chunk.header for chunk in stream.log if chunk.header.next_offset <= next_offset]


def starts(stream: Replica) -> list[int]:
    return [int(path.stem) for path in stream.segments]


async def archived_up_to_the_last_roll(rig: Rig, stream: Replica) -> None:
    await rig.until(lambda: rig.archived and rig.archived[-1][1] >= starts(stream)[-1])
