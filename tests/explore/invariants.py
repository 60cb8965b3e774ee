"""The invariants of docs/design.md, one function each, with its number there: each is held against every state, change
or deletion.

They take plain values, and raise Violation. What has to be at the end, when all graces have passed, is in `ends`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from zlib import crc32

from coldstream.errors import UnavailableError
from coldstream.manifest.change import Change
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import FragmentEntry, JournalEvent, JournalKind
from coldstream.manifest.holding import held
from coldstream.manifest.recorded import change_of, recorded
from coldstream.manifest.spec import LAST, NEXT, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.state import ManifestState
from coldstream.resolve.places import exact_place
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import Offset
from tests.explore.base import ERASED, MESSAGES, SECOND, STREAM, chunks, secret
from tests.explore.lookups import STARTS, look_up, offsets_of, right, table_of
from tests.explore.machine import Violation
from tests.manifest.world import World as PlainWorld
from tests.support.compaction import identity_of
from tests.support.weak import NOTHING, Found

MOST_QUERIES = {AtEnd: 1, AtOffset: 1, AtTimestamp: 4}
"""Of one lookup. A timestamp takes two, and a few more as this stream's clock once ran backwards."""

MOST_IF_MISSING = 5
"""So many more, at the tail, if losses or quarantined segments are recorded."""


@contextmanager
def telling(number: int) -> Iterator[None]:
    """Raise what fails as the violation of an invariant."""
    try:
        yield
    except Violation:
        raise
    except AssertionError as err:
        raise Violation(f"invariant {number}: {str(err).splitlines()[0] if str(err) else 'an assertion'}") from err


def nothing_lost(before: ManifestState, after: ManifestState, event: JournalEvent | None = None) -> None:
    """Hold 1 against a change: what was archived is, until it lies below the floor or is given up, and what is held
    stays."""
    with telling(1):
        head = after.head
        assert head is not None
        was, now = offsets_of(before), offsets_of(after)
        if event is not None and event.kind is JournalKind.RANGE_REMOVED:
            assert event.first_offset is not None
            assert event.next_offset is not None
            was -= set(range(event.first_offset, event.next_offset))
        assert not {offset for offset in was - now if offset >= head.floor}, "archived offsets are lost"
        for one in before.holds.values():
            kept = {offset for offset in was if held([one], Offset(offset), Offset(offset + 1)) is not None}
            assert kept <= now, f"removed in spite of {one.id}"


def nothing_invented(state: ManifestState, objects: MemoryObjects) -> None:
    """Hold 2 and 3 against a state: each entry's object is there, whole, and has just the stream's own chunks.

    The second segment may be of either of two histories, but never of both.
    """
    with telling(2):
        epochs: set[int] = set()
        for one in state.entries.values():
            assert one.key in objects.objects, f"{one.key} is named, and is not there"
            data = _identity(objects, one)
            for number, chunk in enumerate(chunks()):
                if not one.first_offset <= chunk.header.chunk_id < one.next_offset:
                    continue
                found = {epoch for epoch in (1, 2) if chunks(epoch)[number].data in data}
                assert found or one.erased, f"{one.key} does not hold the chunk {chunk.header.chunk_id}"
                if chunk.header.chunk_id >= SECOND:
                    epochs |= found
    with telling(3):
        assert len(epochs) <= 1, "the second segment is archived in parts of two histories"


def _identity(objects: MemoryObjects, one: FragmentEntry) -> bytes:
    data = objects.objects[one.key]
    assert (len(data), crc32(data)) == (one.object_bytes, one.crc32), f"{one.key} has other bytes than its entry says"
    return identity_of(objects, one)


def order_makes_no_difference(
    state: ManifestState, announced: frozenset[int], done: set[int], missing: set[int]
) -> None:
    """Hold 3 against an end: whatever came first, what uploads say is archived is, above the floor, and nothing else
    but what was announced; and of what is said to be missing there is a record."""
    with telling(3):
        head = state.head
        assert head is not None
        if head.is_deleted:
            return
        there = offsets_of(state)
        lacking = {offset for offset in done if offset >= head.floor} - there
        assert not lacking, f"announced, and not archived: {sorted(lacking)}"
        assert there <= announced, f"archived, and not announced: {sorted(there - announced)}"
        recorded_missing = {at for one in state.missing.values() for at in range(one.first_offset, one.next_offset)}
        lacking = {offset for offset in missing if offset >= head.floor} - recorded_missing
        assert not lacking, f"nothing says that {sorted(lacking)} are missing"


def no_silent_gap(state: ManifestState) -> None:
    """Hold 4 against a state: links, gaps with their reasons, totals and timestamps follow from the entries."""
    with telling(4):
        plain = PlainWorld()
        plain.state = state
        plain.check()


def overlap_is_harmless(state: ManifestState, objects: MemoryObjects) -> None:
    """Hold 5 against a state: each lookup finds what reading all chunks finds."""
    table = table_of(state)
    with telling(5):
        for start in STARTS:
            found = look_up(table, start, lambda entry, start: exact_place(objects, entry, start).chunk_id)
            assert found in right(state, start), f"{start} attaches at {found}"


def one_query_or_two(state: ManifestState) -> None:
    """Hold 6 against a state: how many Queries a lookup takes; it asks for no object."""
    with telling(6):
        for start in STARTS:
            table = table_of(state)
            look_up(table, start, lambda entry, _: entry.first_offset)
            most = MOST_QUERIES[type(start)] + (MOST_IF_MISSING if state.missing else 0)
            assert table.requests["Query"] <= most, f"{start} takes {table.requests}"


def fails_closed(state: ManifestState) -> None:
    """Hold 8 against a state: a deleted stream has no end to read on from, and what does not show is never passed by.

    For each entry, the log is looked up as if that entry did not show: its offsets are an error then, or unknown. They
    are neither the tail nor another place.
    """
    with telling(8):
        head = state.head
        if head is not None and head.is_deleted:
            for start in (LAST, NEXT):
                found = look_up(table_of(state), start, lambda entry, _: entry.first_offset)
                assert found == NOTHING, f"the stream is deleted, and {start} attaches at {found}"
            return
        for end, entry in state.entries.items():
            if any(one.first_offset < end and entry.first_offset < one.next_offset for one in _others(state, entry)):
                continue  # while a compaction goes on, another entry has the same offsets
            table = table_of(replace(state, entries={at: one for at, one in state.entries.items() if at != end}))
            start = AtOffset(entry.first_offset)
            try:
                found = look_up(table, start, lambda entry, start: entry.first_offset)
            except UnavailableError:
                continue
            raise Violation(f"invariant 8: the entry of {entry.first_offset} does not show, and attaches at {found}")


def _others(state: ManifestState, entry: FragmentEntry) -> list[FragmentEntry]:
    return [one for one in state.entries.values() if one is not entry]


def only_its_own_cluster(bound: Cluster, noted: Cluster, archived_by: Collection[str]) -> None:
    """Hold 9 against an end: of two clusters that announce a stream only the one archives it that the names are bound
    to, and the bucket says the same."""
    with telling(9):
        assert {*archived_by} <= {bound}, f"bound to {bound!r}, and archived by {sorted(archived_by)}"
        assert noted == bound, f"bound to {bound!r}, and the bucket says {noted!r}"


def journal_is_enough(before: ManifestState, change: Change, after: ManifestState) -> None:
    """Hold 11 against a change: its event has all of it, and applied to what was before gives what is."""
    with telling(11):
        again = change_of(STREAM, change.event, recorded(change))
        assert again == change, "the journal holds another change"
        assert before.after(again) == after, "the journal gives another table"


def answers_are_of_a_moment(found: tuple[OffsetSpec, Found], states: Sequence[ManifestState]) -> None:
    """Hold 5 and 8 against a lookup that others interrupted: its answer was right at some moment of its request."""
    start, place = found
    with telling(5):
        expected = set().union(*(right(state, start) for state in states))
        assert place in expected, f"{start} attaches at {place}, and at no moment there: {expected}"


def rebuild_has_what_stayed(
    found: tuple[frozenset[int], frozenset[str], bool], states: Sequence[ManifestState], went: frozenset[str]
) -> None:
    """Hold 7 against a rebuild beside writers: it has all that was archived all the while, or tells the object.

    `went` are the objects that were deleted meanwhile: of what they held, nothing is asked.
    """
    offsets, doubtful, is_unreadable = found
    if is_unreadable:
        return
    told = {
        offset
        for state in states
        for one in state.entries.values()
        if one.key in doubtful or one.key in went
        for offset in range(one.first_offset, one.next_offset)
    }
    with telling(7):
        always = set.intersection(*map(offsets_of, states))
        assert always <= offsets | told, f"the rebuild lacks {sorted(always - offsets)}, and does not say so"
        assert offsets <= set(range(len(chunks()) * MESSAGES)), "the rebuild invents"


def erased_stays_erased(state: ManifestState, objects: MemoryObjects, erased: frozenset[int]) -> frozenset[int]:
    """Hold 2 against a state: what was erased never comes back; return what is erased by now."""
    with telling(2):
        secrets = {offset: has_message(offset, state, objects) for offset in ERASED}
        back = {offset for offset in erased if secrets[offset]}
        assert not back, f"erased messages are back: {sorted(back)}"
    return erased | {offset for offset, there in secrets.items() if there is False}


def has_message(offset: int, state: ManifestState, objects: MemoryObjects) -> bool | None:
    """Tell whether the archive has the message at an offset; None if it has nothing there."""
    holders = [one for one in state.entries.values() if one.first_offset <= offset < one.next_offset]
    return any(secret(offset) in identity_of(objects, one) for one in holders) if holders else None
