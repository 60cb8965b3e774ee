"""Which life of a stream a broker has, where its directory cannot be seen, and where to read on.

A life that was read before is known again by its last user chunk: the broker has the same chunk at that offset. A life
never seen before is named by its first chunk.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from coldstream.agent.archive import Archive
from coldstream.agent.names import written
from coldstream.agent.pins import segment_files
from coldstream.agent.proof import Broker
from coldstream.agent.rebuild import incarnation_of_first_chunk
from coldstream.agent.walk import SegmentWalk
from coldstream.errors import UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last user chunk that is known of a life, and the offset behind all that is known."""

    chunk_id: ChunkId
    timestamp: TimestampMs
    next_offset: Offset


async def find_life(
    archive: Archive, broker: Broker, pins: Path, vhost: str, name: str
) -> tuple[StreamId, Offset] | None:
    """Return the life of a stream that the broker has now, and the offset to read on from.

    None while the stream is empty and was never seen. Raises NotFoundError where the broker has no such stream,
    UnavailableError while it cannot be told which life this is.
    """
    first = await broker.probe(vhost, name, FIRST)
    newest = await archive.newest_life(vhost, name)
    lives = await asyncio.to_thread(_lives_here, pins, vhost, name)
    for life in dict.fromkeys([*reversed(lives), *([newest] if newest is not None else [])]):
        anchor = await _anchor(archive, pins, life)
        if anchor is not None and await _is_of(broker, vhost, name, anchor, first):
            return StreamId(vhost, name, life), anchor.next_offset
    if first is None:
        return None
    return StreamId(vhost, name, incarnation_of_first_chunk(vhost, name, first)), Offset(first.header.chunk_id)


async def _is_of(broker: Broker, vhost: str, name: str, anchor: Anchor, first: Chunk | None) -> bool:
    """Tell whether the broker's stream is the life of an anchor."""
    there = await broker.probe(vhost, name, AtOffset(Offset(anchor.chunk_id)))
    if there is not None and there.header.chunk_id == anchor.chunk_id:
        return there.header.timestamp == anchor.timestamp
    if first is None:
        return False  # declared again, and empty
    if first.header.chunk_id > anchor.chunk_id:
        # Retention has deleted the chunk. A life that got past it in less time than this one is not to be expected.
        return first.header.timestamp >= anchor.timestamp
    if there is None and first.header.timestamp <= anchor.timestamp:
        raise UnavailableError(f"{name!r} in vhost {vhost!r} does not deliver offset {anchor.chunk_id} any more")
    return False


async def _anchor(archive: Archive, pins: Path, life: Incarnation) -> Anchor | None:
    here = await asyncio.to_thread(_anchor_here, pins / life)
    if here is not None:
        return here
    entry = await archive.last_entry(life)
    if entry is None or entry.last_user_chunk is None:
        return None
    return Anchor(entry.last_user_chunk.chunk_id, entry.last_user_chunk.timestamp, entry.next_offset)


def _lives_here(pins: Path, vhost: str, name: str) -> list[Incarnation]:
    prefix = f"{written(vhost, name)}_"
    if not pins.is_dir():
        return []
    names = (path.name for path in pins.iterdir() if segment_files(path))
    return sorted(
        Incarnation(found) for found in names if found.startswith(prefix) and found.removeprefix(prefix).isdigit()
    )


def _anchor_here(directory: Path) -> Anchor | None:
    for first_offset, path in reversed(segment_files(directory).items()):
        walk = SegmentWalk(path, first_offset)
        try:
            walk.advance()
        except FileNotFoundError:
            continue
        if walk.last_user is not None:
            header = walk.last_user.header
            return Anchor(header.chunk_id, header.timestamp, walk.end.offset)
    return None
