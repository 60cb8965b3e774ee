from __future__ import annotations

from collections.abc import Callable

import pytest

from coldstream.compact.report import CompactionReport
from coldstream.erase.run import Eraser, unfinished_erasures
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import (
    HeldError,
    InvalidQueryError,
    InvalidSettingError,
    NotRestoredError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.manifest.deletion import plan_delete
from coldstream.manifest.entry import Encoding, ErasureState, Hold, JournalKind, StorageClass
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.holding import plan_hold
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.object_values import RestoreTier
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.erase.archived import MessageArchive, body_of, user_of
from tests.erase.samples import between
from tests.erase.stores import GRACE_MS, Erasing
from tests.support.archive import NOW
from tests.support.compacting import Calls, Killed, compact_stream, options_of
from tests.support.removing import move_to_class


def archive_of(*chunks: int) -> Erasing:
    archive = MessageArchive()
    for number, count in enumerate(chunks):
        archive.add(count, encoding=list(Encoding)[number % 2])
    return Erasing(archive)


def expected_after(erasing: Erasing, is_erased: Callable[[int], bool]) -> dict[int, bytes]:
    published = erasing.archive.published
    return {offset: ERASED_MESSAGE if is_erased(offset) else raw for offset, raw in published.items()}


def test_messages_are_gone_and_everything_else_is_there() -> None:
    erasing = archive_of(4, 9, 3, 5)
    report = erasing.erase(between(20, 60))
    assert report.is_done
    assert erasing.archive.read() == expected_after(erasing, lambda offset: 20 <= offset < 60)
    assert report.messages == sum(20 <= offset < 60 for offset in erasing.archive.published)


def test_only_fragments_with_erased_messages_are_rewritten() -> None:
    erasing = archive_of(4, 9, 3, 5)
    before = {entry.next_offset: entry for entry in erasing.archive.log}
    report = erasing.erase(between(25, 30))
    (changed,) = [entry for entry in erasing.archive.log if entry != before[entry.next_offset]]
    assert (changed.first_offset, report.fragments, report.fragments_read) == (24, 1, 1)


def test_a_selection_by_value_reads_everything_and_rewrites_what_has_it() -> None:
    erasing = archive_of(4, 9, 3, 5)
    report = erasing.erase(Selection(key=ValueDigest.of("user-3")))
    assert erasing.archive.read() == expected_after(erasing, lambda offset: user_of(offset) == "user-3")
    assert report.fragments_read == 4


def test_the_old_objects_wait_for_the_sweep_and_no_longer() -> None:
    erasing = archive_of(4, 9)
    old = {entry.key: entry for entry in erasing.archive.log}
    report = erasing.erase(between(0, 1 << 5))
    tombstones = erasing.archive.table.tombstones(erasing.archive.stream.incarnation, TimestampMs(MAX_TIMESTAMP_MS), 10)
    assert {one.key for one in tombstones} == set(old)
    assert {one.due_at for one in tombstones} == {NOW + GRACE_MS} == {report.due_at}
    assert {(one.first_offset, one.next_offset, one.object_bytes) for one in tombstones} == {
        (entry.first_offset, entry.next_offset, entry.object_bytes) for entry in old.values()
    }
    assert erasing.archive.holding(body_of(3)) == {key for key, entry in old.items() if entry.first_offset == 0}


def test_the_totals_of_the_head_are_those_of_the_log() -> None:
    erasing = archive_of(4, 9, 3)
    erasing.erase(between(20, 50))
    head = erasing.archive.table.head(erasing.archive.stream.incarnation)
    assert head is not None
    log = erasing.archive.log
    assert head.data_bytes == sum(entry.data_bytes for entry in log)
    assert head.object_bytes == sum(entry.object_bytes for entry in log)
    assert (head.fragments, head.erasures, head.next_offset) == (3, 1, log[-1].next_offset)
    assert head.generation > 0


def test_the_journal_says_what_when_and_by_whom_but_no_value() -> None:
    erasing = archive_of(4, 9)
    erasing.erase(Selection(key=ValueDigest.of("user-3")))
    events = [
        event
        for event in erasing.archive.table.journal(erasing.archive.stream.incarnation)
        if event.kind is JournalKind.MESSAGES_ERASED
    ]
    assert {event.by for event in events} == {"alice@host"}
    assert {event.at for event in events} == {NOW}
    assert {event.key for event in events} >= {entry.key for entry in erasing.archive.log}
    (erasure,) = erasing.archive.table.erasures(erasing.archive.stream.incarnation)
    taken = sum(user_of(offset) == "user-3" for offset in erasing.archive.published)
    assert (erasure.reason, erasure.state, erasure.messages) == ("ticket 17", ErasureState.DONE, taken)
    assert "user-3" not in f"{erasure} {events}"
    assert len(bytes.fromhex(erasure.digest)) == 32


def test_the_note_in_the_bucket_says_the_same_without_the_value() -> None:
    erasing = archive_of(4)
    report = erasing.erase(Selection(key=ValueDigest.of("user-3")))
    key = "/control/erasure."
    (note,) = [data for name, data in erasing.archive.objects.objects.items() if key in name]
    assert report.erasure.digest in note.decode()
    assert "user-3" not in note.decode()


def test_to_erase_again_finds_nothing_more() -> None:
    erasing = archive_of(4, 9)
    erasing.erase(between(0, 40))
    log = erasing.archive.log
    report = erasing.erase(between(0, 40), with_copies=True)
    assert (report.is_done, report.messages, report.fragments) == (True, 0, 0)
    assert erasing.archive.log == log


def test_the_digest_depends_on_the_offsets_and_not_on_the_bytes() -> None:
    def digest(message: Callable[[int], bytes], selection: Selection) -> str:
        archive = MessageArchive(message=message)
        archive.add(1)
        return Erasing(archive).erase(selection).erasure.digest

    def one(offset: int) -> bytes:
        return b"one %d" % offset

    def other(offset: int) -> bytes:
        return b"an other %d" % offset

    assert digest(one, between(0, 6)) == digest(other, between(0, 6))
    assert digest(one, between(0, 5)) != digest(one, between(0, 6))


def test_a_stream_that_nobody_archived_is_refused() -> None:
    erasing = Erasing(MessageArchive())
    with pytest.raises(StreamNotFoundError):
        erasing.erase(between(0, 5))


def test_offsets_past_the_tail_are_refused_and_not_left_out() -> None:
    erasing = archive_of(4)
    with pytest.raises(InvalidQueryError, match="tail, 24"):
        erasing.erase(between(0, 25))


def test_a_selection_without_an_end_ends_at_the_tail_of_now() -> None:
    erasing = archive_of(4)
    selection = Selection(key=ValueDigest.of("user-3"))
    report = erasing.erase(selection)
    assert (report.erasure.first_offset, report.erasure.next_offset) == (0, 24)


@pytest.mark.parametrize(("first", "following"), [(0, 1), (23, 24), (10, None)])
def test_nothing_is_written_if_a_hold_overlaps_a_fragment(first: int, following: int | None) -> None:
    erasing = archive_of(4, 4)
    stores = erasing.stores()
    hold = put_hold_on(erasing, first, following)
    before = dict(erasing.archive.objects.objects)
    with pytest.raises(HeldError, match=hold):
        erasing.erase(between(5, 6), stores=stores)
    assert erasing.archive.objects.objects == before
    assert erasing.archive.table.erasures(erasing.archive.stream.incarnation) == ()


def put_hold_on(erasing: Erasing, first: int, following: int | None) -> str:
    head = erasing.archive.table.head(erasing.archive.stream.incarnation)
    assert head is not None
    next_offset = None if following is None else Offset(following)
    hold = Hold("case-17", Offset(first), next_offset, "case 17", "bob", NOW)
    erasing.archive.table.apply(plan_hold(head, hold))
    return hold.id


def discarded(erasing: Erasing) -> set[str]:
    """Return the objects that were written in vain, which wait for the sweep."""
    table, incarnation = erasing.archive.table, erasing.archive.stream.incarnation
    waiting = table.tombstones(incarnation, TimestampMs(MAX_TIMESTAMP_MS), 1000)
    return {one.key for one in waiting if one.due_at == NOW + LONGEST_GRACE_MS}


def test_a_hold_on_another_fragment_does_not_matter() -> None:
    erasing = archive_of(4, 4)
    put_hold_on(erasing, 24, 25)
    assert erasing.erase(between(5, 6)).is_done


def test_a_hold_that_comes_while_it_runs_stops_it_before_the_next_fragment() -> None:
    erasing = archive_of(4, 4, 4)
    stores = erasing.stores()
    eraser = Eraser(stores)
    selection = between(0, 60)
    erasure, _, _ = eraser.begin(erasing.archive.stream, selection, reason="", by="alice")
    put_hold_on(erasing, 50, 51)
    with pytest.raises(HeldError):
        eraser.run(erasing.archive.stream, erasure, selection)
    gone = {offset for offset, raw in erasing.archive.read().items() if raw == ERASED_MESSAGE}
    assert max(gone) == 47
    assert len(discarded(erasing)) == 1  # the third new object


def test_a_run_that_is_stopped_goes_on_where_it_was() -> None:
    erasing = archive_of(4, 9, 3, 5)
    asked = iter([False] * 8 + [True] * 1000)
    report = erasing.erase(between(0, 100), should_stop=lambda: next(asked))
    assert not report.is_done
    (left,) = unfinished_erasures(erasing.stores(), erasing.archive.stream.incarnation)
    selection = Selection.from_text(left.where, source="test")
    done = Eraser(erasing.stores()).run(erasing.archive.stream, left, selection)
    assert done.is_done
    assert 0 < done.fragments < 4
    assert erasing.archive.read() == expected_after(erasing, lambda offset: offset < 100)
    assert done.erasure.messages == sum(offset < 100 for offset in erasing.archive.published)


def test_an_erasure_by_a_function_does_not_go_on_without_it() -> None:
    erasing = archive_of(4)
    eraser = Eraser(erasing.stores())
    selection = Selection(function="rules:old").with_predicate(lambda _: True)
    erasure, _, _ = eraser.begin(erasing.archive.stream, selection, reason="", by="alice")
    with pytest.raises(InvalidSettingError, match="rules:old"):
        eraser.run(erasing.archive.stream, erasure, Selection.from_text(erasure.where, source="test"))
    assert eraser.run(erasing.archive.stream, erasure, selection).is_done


def compacted(erasing: Erasing) -> CompactionReport:
    archive = erasing.archive
    options = options_of(Encoding.ZSTD_SEEKABLE)
    return compact_stream(archive.table, archive.objects, archive.stream, options, now=NOW)


def test_a_compaction_that_replaces_the_entry_meanwhile_is_followed() -> None:
    erasing = archive_of(4, 4, 4)
    is_compacted = False

    def on_call(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  as it is called
        nonlocal is_compacted
        if name == "put_new" and not is_compacted and is_done:
            is_compacted = True
            compacted(erasing)

    calls = Calls(erasing.archive.table, erasing.archive.objects, on_call)
    report = erasing.erase(between(0, 30), stores=erasing.stores(calls.table, calls.objects))
    assert is_compacted
    assert report.is_done
    assert len(erasing.archive.log) == 1
    assert erasing.archive.read() == expected_after(erasing, lambda offset: offset < 30)


def test_what_was_erased_stays_erased_through_a_compaction() -> None:
    erasing = archive_of(4, 4, 4)
    erasing.erase(between(0, 30))
    compacted(erasing)
    assert erasing.archive.read() == expected_after(erasing, lambda offset: offset < 30)


@pytest.mark.parametrize("is_after", [False, True])
def test_a_run_that_is_killed_at_any_call_leaves_a_readable_archive_and_can_go_on(*, is_after: bool) -> None:
    number = 0
    while True:
        number += 1
        erasing = archive_of(2, 3)
        old = dict(erasing.archive.objects.objects)

        def on_call(call: int, _: str, is_done: bool) -> None:  # noqa: FBT001  as it is called
            if call == number and is_done is is_after:  # noqa: B023  called before the next turn
                raise Killed

        calls = Calls(erasing.archive.table, erasing.archive.objects, on_call)
        selection = between(3, 20)
        try:
            erasing.erase(selection, stores=erasing.stores(calls.table, calls.objects))
        except Killed:
            pass
        else:
            break
        assert old.items() <= erasing.archive.objects.objects.items()
        read = erasing.archive.read()
        assert all(raw in (erasing.archive.published[offset], ERASED_MESSAGE) for offset, raw in read.items())
        goes_on(erasing, selection)
    assert number > 20


def goes_on(erasing: Erasing, selection: Selection) -> None:
    """Whatever is left of a run, the next one comes to the same end."""
    stores, stream = erasing.stores(), erasing.archive.stream
    left = unfinished_erasures(stores, stream.incarnation)
    if left:
        assert Eraser(stores).run(stream, left[0], selection).is_done
    else:
        erasing.erase(selection, with_copies=True)
    assert erasing.archive.read() == expected_after(erasing, lambda offset: 3 <= offset < 20)
    (erasure,) = [one for one in stores.table.erasures(stream.incarnation) if one.messages]
    assert (erasure.state, erasure.messages) == (ErasureState.DONE, 17)


def test_a_deleted_stream_is_refused() -> None:
    erasing = archive_of(4)
    head = erasing.archive.table.head(erasing.archive.stream.incarnation)
    assert head is not None
    erasing.archive.table.apply(plan_delete(head, NOW, TimestampMs(NOW + 1000), "bob"))
    with pytest.raises(StreamDeletedError):
        erasing.erase(between(0, 5))


def test_a_stream_that_is_deleted_while_it_runs_is_left() -> None:
    erasing = archive_of(4, 4)
    eraser = Eraser(erasing.stores())
    selection = between(0, 40)
    erasure, _, _ = eraser.begin(erasing.archive.stream, selection, reason="", by="alice")
    head = erasing.archive.table.head(erasing.archive.stream.incarnation)
    assert head is not None
    erasing.archive.table.apply(plan_delete(head, NOW, TimestampMs(NOW + 1000), "bob"))
    before = set(erasing.archive.objects.objects)
    with pytest.raises(StreamDeletedError):
        eraser.run(erasing.archive.stream, erasure, selection)
    assert set(erasing.archive.objects.objects) - before == discarded(erasing)


def test_what_must_be_restored_first_is_named_before_anything_is_written() -> None:
    erasing = archive_of(4, 4)
    archive, before = erasing.archive, erasing.archive.log[0]
    info = archive.objects.info(before.key)
    assert info is not None
    entry = move_to_class(archive.table, archive.stream.incarnation, 0, StorageClass.GLACIER)
    archive.objects.copy_in_class(before.key, entry.key, StorageClass.GLACIER, if_match=info.etag)
    with pytest.raises(NotRestoredError, match=entry.key):
        erasing.erase(between(0, 5))
    assert archive.table.erasures(archive.stream.incarnation) == ()
    archive.objects.restore(entry.key, 1, RestoreTier.STANDARD)
    archive.objects.finish_restores()
    assert erasing.erase(between(0, 5)).is_done
    assert archive.log[0].storage_class is None  # it is written anew, in STANDARD


def test_a_fence_that_is_raised_while_it_runs_sends_it_to_a_later_key() -> None:
    erasing = archive_of(4)
    table = erasing.archive.table
    is_raised = False

    def on_call(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  as it is called
        nonlocal is_raised
        if name == "put_new" and is_done and not is_raised:
            is_raised = True
            head = table.head(erasing.archive.stream.incarnation)
            assert head is not None
            table.apply(plan_fence(head, 7, NOW))

    calls = Calls(table, erasing.archive.objects, on_call)
    assert erasing.erase(between(0, 5), stores=erasing.stores(calls.table, calls.objects)).is_done
    (entry,) = erasing.archive.log
    assert (is_raised, entry.generation) == (True, 7)
    assert len(discarded(erasing)) == 1
