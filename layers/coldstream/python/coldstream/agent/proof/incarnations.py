"""Which incarnation of a stream a broker has, if its directory cannot be seen, and where to read on.

An incarnation that was read before is recognised by its last user chunk: the broker has the same chunk at that offset.
Nothing else shows it. A stream that was declared again may have grown past that offset, and retention may have deleted
the chunk in either. So an incarnation that does not have the chunk any more is taken for another one, and the two are
never mixed. An incarnation that was never seen before is named after its first chunk.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.pins import segment_files
from coldstream.agent.disk.walk import SegmentWalk
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.names import encode_names
from coldstream.agent.state_directory import StateDirectory
from coldstream.errors import UnavailableError
from coldstream.format.chunk import Chunk, ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId, incarnation
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

log = logging.getLogger(__name__)

CLOCKS_APART_MS = 60_000
"""How far the clocks of leaders may be apart."""

_NS_IN_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Anchor:
    """A user chunk by which an incarnation is recognised, and `next_offset` to read on from.

    That is after all that is known of it, or the chunk's own offset. `header` is the chunk's, if it is at hand. If it
    is not, `epoch` is of the chunk or of a later one; None is not known. `missed_from` is set if the incarnation is new
    and begins after the end of the newest one known: it is that end. It may be the same stream then, and retention may
    have deleted what lies between because no agent was there. `is_midway` says that an incarnation that was never seen
    is to be read from this chunk on, whatever the broker has before it.
    """

    chunk_id: ChunkId
    timestamp: TimestampMs
    next_offset: Offset
    header: ChunkHeader | None = None
    epoch: Epoch | None = None
    missed_from: Offset | None = None
    is_midway: bool = False

    @property
    def is_first(self) -> bool:
        """Tell whether the incarnation was never seen before, so that nothing but this chunk is known of it."""
        return self.next_offset <= self.chunk_id

    def is_chunk(self, delivered: ChunkHeader) -> bool:
        """Tell whether the broker delivered this very chunk."""
        if self.header is not None:
            return is_same(self.header, delivered)
        may_be_of_epoch = self.epoch is None or delivered.epoch <= self.epoch
        return may_be_of_epoch and (delivered.chunk_id, delivered.timestamp) == (self.chunk_id, self.timestamp)


async def find_incarnation(
    archive: ArchiveClient,
    broker: BrokerProver,
    vhost: str,
    name: str,
    *,
    state: StateDirectory,
    start: OffsetSpec = FIRST,
) -> tuple[StreamId, Anchor] | None:
    """Return the incarnation of a stream that the broker has now, and where to read on.

    A stream of which no incarnation was ever seen is read from `start` on. None if the stream is empty and was never
    seen, or has nothing at `start` yet. Raises NotFoundError if the broker has no such stream, and
    UnavailableError while it cannot be told which incarnation this is.
    """
    first = await broker.probe(vhost, name, FIRST)
    # First the disk, then the archive: what is archived and released between the two steps is in one or the other.
    found = set(await asyncio.to_thread(_incarnations_here, state, vhost, name))
    newest = await archive.newest_incarnation(vhost, name)
    if newest is not None:
        found.add(newest)
    is_newest = True
    missed_from: Offset | None = None
    for candidate in sorted(found, key=lambda one: (len(one), one), reverse=True):  # their names end in their times
        anchor = await _anchor(archive, state, candidate)
        if anchor is None:
            continue
        if await _has_anchor(broker, vhost, name, anchor, is_newest=is_newest):
            return StreamId(vhost, name, candidate), anchor
        if is_newest and first is not None and anchor.next_offset < first.header.chunk_id:
            missed_from = anchor.next_offset
        is_newest = False
    if first is None:
        return None
    header = first.header
    begun: Anchor | None
    begun = Anchor(header.chunk_id, header.timestamp, Offset(header.chunk_id), header, missed_from=missed_from)
    if start != FIRST and not found:
        begun = await _midway(broker, vhost, name, start, first=begun)
    return None if begun is None else (StreamId(vhost, name, incarnation_of_first_chunk(vhost, name, first)), begun)


def incarnation_of_first_chunk(vhost: str, name: str, chunk: Chunk) -> Incarnation:
    """Name an incarnation whose directory cannot be seen after the first chunk that the broker has of it.

    The name is like the broker's own, with the chunk's time in place of the declaration's. Below the milliseconds is a
    checksum of the names, since two streams whose names are encoded alike may begin in the same millisecond. Raises
    InvalidNameError if the names are too long for that.
    """
    checksum = crc32(f"{vhost}\0{name}".encode()) % _NS_IN_MS
    names = encode_names(vhost, name)
    return incarnation(f"{names}_{chunk.header.timestamp * _NS_IN_MS + checksum:019}")


async def _midway(broker: BrokerProver, vhost: str, name: str, start: OffsetSpec, *, first: Anchor) -> Anchor | None:
    """Return the anchor of the chunk at a start, `first` if it is that one, None if the broker does not have it yet."""
    begun = await broker.probe(vhost, name, start)
    if begun is None:
        return None
    header = begun.header
    # A broker that is asked for what is past its end delivers whatever comes next.
    if isinstance(start, AtOffset) and header.next_offset <= start.offset:
        return None
    if isinstance(start, AtTimestamp) and header.timestamp < start.timestamp:
        return None
    if header.chunk_id <= first.chunk_id:
        return first
    return Anchor(header.chunk_id, header.timestamp, Offset(header.chunk_id), header, is_midway=True)


async def _has_anchor(broker: BrokerProver, vhost: str, name: str, anchor: Anchor, *, is_newest: bool) -> bool:
    """Tell whether the broker's stream is the incarnation of an anchor.

    One that is not the newest known has to have the very chunk, since another is known to have come after it.
    """
    delivered = await broker.probe(vhost, name, AtOffset(Offset(anchor.chunk_id)))
    if delivered is not None and delivered.header.chunk_id == anchor.chunk_id:
        return anchor.is_chunk(delivered.header)
    if not is_newest:
        return False
    # Asked for only now: retention may have deleted the chunk between the first look at the stream and the probe.
    first = await broker.probe(vhost, name, FIRST)
    if first is None:
        return False  # declared again, and empty
    if first.header.chunk_id > anchor.chunk_id:
        log.warning(
            "%r in vhost %r begins at offset %d, after the last chunk that was read of it, at %d:"
            " nothing shows that it is still the same incarnation, so it is archived as another",
            name,
            vhost,
            first.header.chunk_id,
            anchor.chunk_id,
        )
        return False
    if delivered is None and first.header.timestamp <= anchor.timestamp:
        # It is as old as the anchor, so it may be the same; the member that answers may lag behind.
        raise UnavailableError(f"{name!r} in vhost {vhost!r} does not deliver offset {anchor.chunk_id} any more")
    return False


async def _anchor(archive: ArchiveClient, state: StateDirectory, candidate: Incarnation) -> Anchor | None:
    """Return the anchor of an incarnation: of its segments here if there are any, else of what is archived."""
    here = await asyncio.to_thread(_anchor_here, state.pins_of(candidate))
    if here is not None:
        return here
    entry = await archive.last_entry(candidate)
    if entry is None or entry.last_user_chunk is None:
        return None
    last = entry.last_user_chunk
    return Anchor(last.chunk_id, last.timestamp, entry.next_offset, epoch=entry.epoch)


def _incarnations_here(state: StateDirectory, vhost: str, name: str) -> list[Incarnation]:
    """Return the incarnations of a stream that have segments here.

    The names of other streams may be encoded alike; the files of what is remembered tell which incarnation is whose.
    """
    prefix = f"{encode_names(vhost, name)}_"
    if not state.pins.is_dir():
        return []
    names = (path.name for path in state.pins.iterdir() if segment_files(path))
    found = [Incarnation(text) for text in names if text.startswith(prefix) and text.removeprefix(prefix).isdigit()]
    streams = [(one, state.stream_file(one).load().stream) for one in found]
    return [one for one, stream in streams if stream is None or (stream.vhost, stream.name) == (vhost, name)]


def _anchor_here(directory: Path) -> Anchor | None:
    for first_offset, path in reversed(segment_files(directory).items()):
        walk = SegmentWalk(path, first_offset)
        try:
            walk.advance()
        except FileNotFoundError:
            continue  # archived and released meanwhile
        if walk.last_user is not None:
            header = walk.last_user.header
            return Anchor(header.chunk_id, header.timestamp, walk.end.offset, header)
    return None
