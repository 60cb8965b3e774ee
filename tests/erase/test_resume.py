from __future__ import annotations

import pytest

from coldstream.erase.resume import LEAST_AGE_MS, resume_erasures
from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import CorruptionError, UnavailableError
from coldstream.lifecycle.markers import note_erasure
from coldstream.manifest.entry import ErasureState, Hold
from coldstream.manifest.holding import plan_hold
from coldstream.units import Offset
from tests.erase.archived import MessageArchive
from tests.erase.samples import between
from tests.erase.stores import Erasing
from tests.support.archive import NOW


def begun(selection: Selection) -> Erasing:
    """Begin an erasure, an hour ago, of a stream of three fragments."""
    archive = MessageArchive()
    for _ in range(3):
        archive.add(4)
    erasing = Erasing(archive)
    Eraser(erasing.stores()).begin(archive.stream, selection, reason="", by="alice")
    erasing.clock.at += LEAST_AGE_MS
    return erasing


def states(erasing: Erasing) -> list[ErasureState]:
    return [one.state for one in erasing.archive.table.erasures(erasing.archive.stream.incarnation)]


def test_what_was_interrupted_is_done_without_knowing_the_value() -> None:
    erasing = begun(Selection(key=ValueDigest.of("user-3")))
    (resumed,) = resume_erasures(Eraser(erasing.stores()), [erasing.archive.stream])
    assert resumed.report is not None
    assert resumed.report.is_done
    assert states(erasing) == [ErasureState.DONE]
    assert list(resume_erasures(Eraser(erasing.stores()), [erasing.archive.stream])) == []


def test_what_was_begun_just_now_is_left_to_whoever_began_it() -> None:
    erasing = begun(between(0, 30))
    erasing.clock.at -= 1
    assert list(resume_erasures(Eraser(erasing.stores()), [erasing.archive.stream])) == []


def test_a_function_of_a_user_is_named_and_not_guessed() -> None:
    erasing = begun(Selection(function="rules:old").with_predicate(lambda _: True))
    (resumed,) = resume_erasures(Eraser(erasing.stores()), [erasing.archive.stream])
    assert (resumed.function, resumed.report, resumed.error) == ("rules:old", None, None)
    assert states(erasing) == [ErasureState.RUNNING]


def test_an_error_of_one_does_not_keep_the_others() -> None:
    erasing = begun(between(0, 72))
    stores = erasing.stores()
    Eraser(stores).begin(erasing.archive.stream, between(48, 72), reason="", by="bob")
    erasing.clock.at += LEAST_AGE_MS
    key = erasing.archive.log[0].key
    erasing.archive.objects.objects[key] = erasing.archive.objects.objects[key][:-1]
    resumed = list(resume_erasures(Eraser(stores), [erasing.archive.stream]))
    assert sorted(isinstance(one.error, CorruptionError) for one in resumed) == [False, True]
    assert sorted(states(erasing)) == [ErasureState.DONE, ErasureState.RUNNING]


def test_a_stopped_run_begins_nothing_and_says_where_it_is() -> None:
    erasing = begun(between(0, 72))
    asked = iter([False] * 3 + [True] * 100)
    eraser = Eraser(erasing.stores(), should_stop=lambda: next(asked))
    (resumed,) = resume_erasures(eraser, [erasing.archive.stream])
    assert resumed.report is not None
    assert not resumed.report.is_done
    assert states(erasing) == [ErasureState.RUNNING]


def test_a_long_look_through_fragments_without_such_messages_is_saved() -> None:
    erasing = begun(Selection(Offset(0), Offset(72), key=ValueDigest.of("nobody")))
    count = 0

    def should_stop() -> bool:
        nonlocal count
        count += 1
        return count > 3

    (resumed,) = resume_erasures(Eraser(erasing.stores(), should_stop=should_stop), [erasing.archive.stream])
    assert resumed.report is not None
    assert not resumed.report.is_done
    (saved,) = erasing.archive.table.erasures(erasing.archive.stream.incarnation)
    assert 0 < saved.reached < 72
    assert saved.reached == resumed.report.erasure.reached


def test_a_hold_keeps_an_erasure_waiting() -> None:
    erasing = begun(between(0, 72))
    head = erasing.archive.table.head(erasing.archive.stream.incarnation)
    assert head is not None
    erasing.archive.table.apply(plan_hold(head, Hold("case-17", Offset(0), None, "case 17", "bob", NOW)))
    (resumed,) = resume_erasures(Eraser(erasing.stores()), [erasing.archive.stream])
    assert "case-17" in str(resumed.error)
    assert resumed.report is None


def test_an_end_that_a_run_did_not_live_to_tell_is_told_to_the_bucket() -> None:
    erasing = begun(between(0, 30))
    stores, incarnation = erasing.stores(), erasing.archive.stream.incarnation
    (before,) = stores.table.erasures(incarnation)
    list(resume_erasures(Eraser(stores), [erasing.archive.stream]))
    stores.control.write_erasure(incarnation, before)
    assert list(resume_erasures(Eraser(stores), [erasing.archive.stream])) == []
    assert tuple(stores.control.erasures(incarnation)) == stores.table.erasures(incarnation) != (before,)


def test_an_end_that_cannot_be_told_is_an_error_of_its_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    erasing = begun(between(0, 30))
    stores = erasing.stores()

    def unavailable(*_: object) -> None:
        raise UnavailableError("no answer came")

    monkeypatch.setattr("coldstream.erase.resume.write_missing_erasures", unavailable)
    (resumed,) = resume_erasures(Eraser(stores), [erasing.archive.stream])
    assert isinstance(resumed.error, UnavailableError)


def test_a_note_that_comes_late_is_not_left_over_that_of_the_end() -> None:
    erasing = begun(between(0, 30))
    stores, incarnation = erasing.stores(), erasing.archive.stream.incarnation
    (before,) = stores.table.erasures(incarnation)
    list(resume_erasures(Eraser(stores), [erasing.archive.stream]))
    note_erasure(stores, incarnation, before)  # by a process that slept since it read it
    assert tuple(stores.control.erasures(incarnation)) == stores.table.erasures(incarnation)
