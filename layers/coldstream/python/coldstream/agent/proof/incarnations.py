"""Which life of a stream a broker has, where its directory cannot be seen, and where to read on.

A life that was read before is known again by its last user chunk: the broker has the same chunk at that offset. Nothing
else shows it. A stream that was declared again may have got past that offset, and retention may have deleted the chunk
in either; so what does not have it any more is taken for another life, and the two are never mixed. A life never seen
before is named by its first chunk.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.pins import segment_files
from coldstream.agent.disk.walk import SegmentWalk
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.names import written
from coldstream.agent.recording.rebuild import incarnation_of_first_chunk
from coldstream.agent.stream_file import StreamFile
from coldstream.errors import UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

log = logging.getLogger(__name__)

CLOCKS_APART_MS = 60_000
"""What the clocks of leaders may differ by."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A user chunk that a life is known by, and the offset to read on from: behind all that is known, or its own.

    `header` is the whole of it, where that is at hand; else `epoch`, where it is not None, is of it or of a later one.
    `missed_from` is where the newest life that is known ends, when this one is new and begins past that: it may be the
    same stream, of which retention has deleted what is between, and an agent ought to have been there.
    """

    chunk_id: ChunkId
    timestamp: TimestampMs
    next_offset: Offset
    header: ChunkHeader | None = None
    epoch: Epoch | None = None
    missed_from: Offset | None = None

    @property
    def is_first(self) -> bool:
        """Tell whether the life was never seen before: nothing is known of it but this chunk."""
        return self.next_offset <= self.chunk_id

    def is_chunk(self, delivered: ChunkHeader) -> bool:
        """Tell whether the broker delivered this very chunk."""
        if self.header is not None:
            return is_same(self.header, delivered)
        may_be_of_epoch = self.epoch is None or delivered.epoch <= self.epoch
        return may_be_of_epoch and (delivered.chunk_id, delivered.timestamp) == (self.chunk_id, self.timestamp)


async def find_life(
    archive: ArchiveClient, broker: BrokerProver, vhost: str, name: str, *, pins: Path, memories: Path
) -> tuple[StreamId, Anchor] | None:
    """Return the life of a stream that the broker has now, and where to read on.

    None while the stream is empty and was never seen. Raises NotFoundError where the broker has no such stream,
    UnavailableError while it cannot be told which life this is.
    """
    first = await broker.probe(vhost, name, FIRST)
    # In this order: what is archived and let go meanwhile is then in the one or the other.
    lives = set(await asyncio.to_thread(_lives_here, pins, memories, vhost, name))
    newest = await archive.newest_incarnation(vhost, name)
    is_newest = True
    missed_from: Offset | None = None
    for life in sorted(lives if newest is None else lives | {newest}, key=lambda life: (len(life), life), reverse=True):
        anchor = await _anchor(archive, pins, life)
        if anchor is None:
            continue
        if await _is_of(broker, vhost, name, anchor, is_newest=is_newest):
            return StreamId(vhost, name, life), anchor
        if is_newest and first is not None and anchor.next_offset < first.header.chunk_id:
            missed_from = anchor.next_offset
        is_newest = False
    if first is None:
        return None
    header = first.header
    anchor = Anchor(header.chunk_id, header.timestamp, Offset(header.chunk_id), header, missed_from=missed_from)
    return StreamId(vhost, name, incarnation_of_first_chunk(vhost, name, first)), anchor


async def _is_of(broker: BrokerProver, vhost: str, name: str, anchor: Anchor, *, is_newest: bool) -> bool:
    """Tell whether the broker's stream is the life of an anchor. One that had another after it needs the very chunk."""
    there = await broker.probe(vhost, name, AtOffset(Offset(anchor.chunk_id)))
    if there is not None and there.header.chunk_id == anchor.chunk_id:
        return anchor.is_chunk(there.header)
    if not is_newest:
        return False
    first = await broker.probe(vhost, name, FIRST)  # only now: retention may have deleted the chunk this very moment
    if first is None:
        return False  # declared again, and empty
    if first.header.chunk_id > anchor.chunk_id:
        log.warning(
            "%r in vhost %r begins at offset %d, past the last chunk that was read of it, at %d:"
            " nothing shows that it is still the same life, and it is archived as another",
            name,
            vhost,
            first.header.chunk_id,
            anchor.chunk_id,
        )
        return False
    if there is None and first.header.timestamp <= anchor.timestamp:
        raise UnavailableError(f"{name!r} in vhost {vhost!r} does not deliver offset {anchor.chunk_id} any more")
    return False


async def _anchor(archive: ArchiveClient, pins: Path, life: Incarnation) -> Anchor | None:
    here = await asyncio.to_thread(_anchor_here, pins / life)
    if here is not None:
        return here
    entry = await archive.last_entry(life)
    if entry is None or entry.last_user_chunk is None:
        return None
    last = entry.last_user_chunk
    return Anchor(last.chunk_id, last.timestamp, entry.next_offset, epoch=entry.epoch)


def _lives_here(pins: Path, memories: Path, vhost: str, name: str) -> list[Incarnation]:
    """Return the lives of which segments are here. Other streams may be written alike; memory tells them apart."""
    prefix = f"{written(vhost, name)}_"
    if not pins.is_dir():
        return []
    names = (path.name for path in pins.iterdir() if segment_files(path))
    found = [Incarnation(life) for life in names if life.startswith(prefix) and life.removeprefix(prefix).isdigit()]
    streams = [(life, StreamFile(memories, life).load().stream) for life in found]
    return [life for life, stream in streams if stream is None or (stream.vhost, stream.name) == (vhost, name)]


def _anchor_here(directory: Path) -> Anchor | None:
    for first_offset, path in reversed(segment_files(directory).items()):
        walk = SegmentWalk(path, first_offset)
        try:
            walk.advance()
        except FileNotFoundError:
            continue
        if walk.last_user is not None:
            header = walk.last_user.header
            return Anchor(header.chunk_id, header.timestamp, walk.end.offset, header)
    return None
