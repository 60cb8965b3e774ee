"""Archives to rebuild, in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from coldstream.compact.commit import commit
from coldstream.compact.write import write_group
from coldstream.manifest.entry import Encoding, FragmentEntry, LastUserChunk, Row
from coldstream.manifest.groups import Group
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.state import ManifestState
from coldstream.rebuild.fragment import FoundFragment, read_fragment
from coldstream.store.keys import Keys
from coldstream.store.ports import ListedObject
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.segments import START, STREAM, MemoryArchive


def found(archive: MemoryArchive, entry: FragmentEntry) -> FoundFragment:
    """Make the entry of an object again."""
    return read_fragment(archive.objects, listed(archive, entry.key), entry.first_offset, entry.generation)


def listed(archive: MemoryArchive, key: str) -> ListedObject:
    (one,) = archive.objects.listed(key)
    return one


def unlinked(entry: FragmentEntry) -> FragmentEntry:
    return replace(entry, prior_offset=None, prior_timestamp=None)


def without_notes(archive: MemoryArchive) -> None:
    """Have all objects be as earlier releases wrote them."""
    for key in archive.objects.objects:
        archive.objects._change(key, note=None)


def compact(archive: MemoryArchive, first: int, following: int, encoding: Encoding) -> FragmentEntry:
    """Merge entries of the log, by their numbers."""
    incarnation = archive.stream.incarnation
    group = Group(archive.log()[first:following])
    merged = write_group(archive.objects, archive.keys, incarnation, group, encoding).entry
    commit(archive.table, incarnation, group, merged, now=lambda: START, grace_ms=1000)
    return next(entry for entry in archive.log() if entry.key == merged.key)


def small_points(patch: pytest.MonkeyPatch, modules: Iterable[str], step_bytes: int = 2_000) -> None:
    """Have fragments of a few kilobytes have several points in their sparse index."""
    for module in modules:
        patch.setattr(f"coldstream.{module}.STEP_BYTES", step_bytes)


def entry_of(
    first: int, following: int | None = None, *, generation: int = 0, epoch: int = 1, crc32: int = 0
) -> FragmentEntry:
    """Make the entry of a fragment of one chunk."""
    point = SparsePoint(ChunkId(first), 0, 8, TimestampMs(first), TimestampMs(first))
    following = first + 10 if following is None else following
    return FragmentEntry(
        first_offset=Offset(first),
        next_offset=Offset(following),
        first_timestamp=TimestampMs(first),
        last_timestamp=TimestampMs(first),
        greatest_timestamp=TimestampMs(first),
        epoch=Epoch(epoch),
        chunks=1,
        records=following - first,
        messages=following - first,
        data_bytes=100,
        object_bytes=200,
        key=Keys().fragment(STREAM.incarnation, Offset(first), generation),
        crc32=crc32,
        sparse=SparseIndex((point,)),
        last_user_chunk=LastUserChunk(ChunkId(first), 8, TimestampMs(first)),
        segment_offset=Offset(first),
        generation=generation,
        first_epoch=Epoch(epoch),
        data_crc32=crc32,
    )


def rows_of(state: ManifestState) -> list[Row]:
    """List all items of a state."""
    held = (state.entries, state.gaps, state.missing, state.events, state.tombstones, state.holds, state.erasures)
    rows: list[Row] = [row for items in held for row in items.values()]  # type: ignore[attr-defined]
    return rows if state.head is None else [*rows, state.head]
