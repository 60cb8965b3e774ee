"""Streams of a real broker, in an archive in memory; what of them was archived, by offset."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from coldstream.format.amqp.message import messages
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.stream import StreamId, stream_from_directory
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.replay.request import ReplayRequest
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset
from tests.support.golden import golden_logs
from tests.support.segments import MemoryArchive


@dataclass(frozen=True)
class Archived:
    """The archive, and its messages as they were published."""

    table: MemoryTable
    objects: MemoryObjects
    stream: StreamId
    messages: dict[int, bytes]

    @property
    def end(self) -> Offset:
        """The tail."""
        head = self.table.head(self.stream.incarnation)
        assert head is not None
        assert head.next_offset is not None
        return head.next_offset

    def source(self, start: int = 0, end: int | None = None, **options: bool) -> ReplayRequest:
        """What is to be replayed of it."""
        return ReplayRequest(self.stream, Offset(start), self.end if end is None else Offset(end), **options)

    def between(self, start: int, end: int) -> list[bytes]:
        """The messages of these offsets."""
        return [message for offset, message in self.messages.items() if start <= offset < end]


def archived(directory: Path, stream: StreamId) -> Archived:
    """Archive the rolled segments of a directory."""
    archive = MemoryArchive(stream=stream)
    archive.announce(directory)
    found: dict[int, bytes] = {}
    for step in plan_scan(archive.table, stream, Offset(0)):
        assert isinstance(step, ScanSlice)
        for chunk in read_slice(archive.objects, step):
            found |= {message.offset: message.raw for message in messages(chunk, source=step.key)}
    return Archived(archive.table, archive.objects, stream, found)


@cache
def recorded(name: str) -> Archived:
    """Archive all of a recorded stream: plain, sub-batches, tracking, amqp-0-9-1, amqp-1-0."""
    (log,) = [log for log in golden_logs() if log.stream == name]
    with TemporaryDirectory() as made:
        directory = Path(made) / log.directory.name
        shutil.copytree(log.directory, directory)
        next_offset = log.chunks[-1].chunk_id + log.chunks[-1].records
        (directory / f"{next_offset:020}.segment").write_bytes(SEGMENT_HEADER)  # so that the last one is rolled, too
        return archived(directory, stream_from_directory(directory.name, name=log.stream, vhost=log.vhost))
