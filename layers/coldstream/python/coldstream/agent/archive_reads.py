"""What the agent reads of an archive: the holes in it, what is on its way in, and where its messages end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from coldstream.archive.commit import read_missing
from coldstream.errors import ConflictError
from coldstream.manifest.entry import FragmentEntry, Gap
from coldstream.manifest.holes import holes
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import MAX_OFFSET, Offset

LAST_ENTRIES = 10
"""Fragments read at a time to find the last message; those that hold tracking chunks alone are rare."""


@dataclass(frozen=True, slots=True)
class ArchiveHoles:
    """The offsets, of some, that no entry covers, in order, each with its reason if it has one.

    `archived_from` is where the archive of the stream begins, None if it has nothing.
    """

    gaps: tuple[Gap, ...]
    archived_from: Offset | None


@dataclass(frozen=True, slots=True)
class StagingActivity:
    """Whether segments of some offsets are staged, and how many parts there are of those that are being staged."""

    is_staged: bool
    parts: int


def read_holes(
    table: ManifestTable, incarnation: Incarnation, first_offset: Offset, next_offset: Offset, limit: int
) -> ArchiveHoles:
    """Return which of these offsets the manifest neither covers nor had removed; the last `limit` gaps are looked at.

    Cost: one GetItem, and two Queries if the stream has gaps and losses.
    """
    head = table.head(incarnation)
    gaps = table.gaps_before(incarnation, next_offset, limit) if head is not None and head.gaps else ()
    missing = () if head is None else read_missing(table, head)
    found = tuple(holes(head, gaps, missing, first_offset, next_offset))
    return ArchiveHoles(found, None if head is None else head.first_offset)


def read_staging(
    objects: ObjectStore, keys: Keys, incarnation: Incarnation, first_offset: Offset, next_offset: Offset
) -> StagingActivity:
    """Return what of these offsets is on its way in, whoever sends it. Cost: two listings, and one for each upload."""

    def is_about(key: str) -> bool:
        offsets = keys.staged_offsets(key)
        return offsets is not None and offsets[0] < next_offset and first_offset < offsets[1]

    prefix, parts = keys.staging(incarnation), 0
    for key, upload_id in objects.uploads_under(prefix):
        with suppress(ConflictError):  # completed or aborted since
            parts += len(objects.parts(key, upload_id)) if is_about(key) else 0
    # List the objects after the uploads: an upload that completes in between would else be in neither list.
    return StagingActivity(any(is_about(key) for key in objects.keys(prefix)), parts)


def read_last_entry(
    table: ManifestTable,
    incarnation: Incarnation,
    end: Offset = Offset(MAX_OFFSET),  # noqa: B008  a NewType is its value
) -> FragmentEntry | None:
    """Return the last fragment with messages among those that end at or before `end`; None if there is none."""
    while entries := table.log_before(incarnation, end, LAST_ENTRIES):
        found = next((entry for entry in entries if entry.last_user_chunk is not None), None)
        if found is not None:
            return found
        end = min(entry.first_offset for entry in entries)
    return None
