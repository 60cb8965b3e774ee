"""Several entries appended by one change: the log and the head are those of as many commits, but for the revision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import BelowFloorError, OverlapError, StaleGenerationError, StreamDeletedError
from coldstream.manifest.change import PutEntry
from coldstream.manifest.commit import MAX_APPENDS, Neighbourhood, plan_appends, plan_commit
from coldstream.manifest.entry import Head
from coldstream.manifest.recorded import change_of, recorded
from coldstream.units import Offset
from tests.store.samples import NOW, ORDERS, entry

ENTRIES = [entry(first, first + 10, time=1000 + first) for first in range(40, 80, 10)]


def test_it_comes_to_what_one_commit_each_would_come_to() -> None:
    before = plan_commit(Neighbourhood(Head(ORDERS)), entry(0, 40, time=5000), NOW).head
    one_by_one, put = before, []
    for new in ENTRIES:
        change = plan_commit(Neighbourhood(one_by_one), new, NOW)
        one_by_one = change.head
        put += [write.entry for write in change.of(PutEntry)]
    at_once = plan_appends(before, ENTRIES, NOW)
    assert [write.entry for write in at_once.of(PutEntry)] == put
    assert replace(at_once.head, revision=one_by_one.revision) == one_by_one
    assert at_once.head.revision == before.revision + 1
    assert (at_once.event.first_offset, at_once.event.next_offset, at_once.event.detail) == (40, 80, "4 fragments")
    assert change_of(ORDERS, at_once.event, recorded(at_once)) == at_once


def test_one_entry_is_a_commit() -> None:
    assert plan_appends(Head(ORDERS), ENTRIES[:1], NOW) == plan_commit(Neighbourhood(Head(ORDERS)), ENTRIES[0], NOW)


def test_a_change_has_room_for_the_most_entries() -> None:
    many = [entry(first, first + 10) for first in range(0, 10 * MAX_APPENDS, 10)]
    change = plan_appends(Head(ORDERS), many, NOW)
    assert change.items == MAX_APPENDS + 3
    assert len(recorded(change)) < 400_000
    for wrong in ([], [*many, entry(10 * MAX_APPENDS, 10 * MAX_APPENDS + 1)]):
        with pytest.raises(ValueError, match="entries are not 1 to"):
            plan_appends(Head(ORDERS), wrong, NOW)


def test_a_hole_between_two_is_no_plan() -> None:
    with pytest.raises(ValueError, match="follow one another"):
        plan_appends(Head(ORDERS), [ENTRIES[0], ENTRIES[2]], NOW)


def test_a_log_that_goes_on_by_now_refuses_all_of_them() -> None:
    head = plan_commit(Neighbourhood(Head(ORDERS)), entry(0, 45), NOW).head
    with pytest.raises(OverlapError):
        plan_appends(head, ENTRIES, NOW)


def test_what_was_removed_or_may_be_collected_comes_not_back_among_others() -> None:
    head = Head(ORDERS, revision=1)
    with pytest.raises(BelowFloorError):
        plan_appends(replace(head, floor=Offset(41)), ENTRIES, NOW)
    with pytest.raises(StaleGenerationError):
        plan_appends(replace(head, generation=1), [replace(ENTRIES[0], generation=1), ENTRIES[1]], NOW)
    with pytest.raises(StreamDeletedError):
        plan_appends(replace(head, deleted_at=NOW), ENTRIES, NOW)
