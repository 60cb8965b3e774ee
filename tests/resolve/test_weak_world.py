"""Lookups in a table that changes meanwhile and shows halves of changes: right for some moment, or refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import UnavailableError
from coldstream.format.chunk import ChunkType
from coldstream.manifest.entry import Loss
from coldstream.resolve.answer import Bounds
from coldstream.resolve.cursor import Cursor
from coldstream.units import Offset
from tests.support.archive import NOW, STREAM, Spec, steady
from tests.support.removing import delete, remove_prefix, undelete
from tests.support.weak import (
    INCARNATION,
    NOTHING,
    Chance,
    Script,
    Start,
    WeakHistory,
    WeakTable,
    follows,
    random_history,
)


def check(history: WeakHistory, table: WeakTable, start: Start, limit: int) -> str:
    """Ask where a start attaches, and compare the answer with every moment of the request."""
    try:
        found = table.ask(start, limit)
    except UnavailableError:
        return "refused"
    right = history.right(table.begun, table.moment, start)
    assert found in right, f"{start}: {found}, which is none of {sorted(right)}"
    return found[0]


def check_ranges(history: WeakHistory, table: WeakTable, start: Start, limit: int) -> str:
    """Ask for ranges; compare the first, and what follows the last, with every moment of the request."""
    try:
        answer = table.ask_ranges(start, Bounds(max_ranges=limit))
    except UnavailableError:
        return "refused"
    right = history.right(table.begun, table.moment, start)
    if answer is None or not answer.ranges:
        found = NOTHING if answer is None else follows(answer)
        assert found in right, f"{start}: {found}, which is none of {sorted(right)}"
        return "nothing"
    ids = {found[1] for found in right if found[0] == "chunk"}
    first = answer.ranges[0]
    assert any(first.first_offset <= one < first.next_offset for one in ids), f"{start}: {first}, not with any of {ids}"
    for before, after in pairwise(answer.ranges):
        assert after.first_offset <= before.next_offset < after.next_offset
    if answer.cursor is None:
        following = Cursor(INCARNATION, answer.ranges[-1].next_offset)
        right = history.right(table.begun, table.moment, following)
        assert follows(answer) in right, f"{start}: {answer}, and then none of {sorted(right)}"
    return "ranges"


@pytest.mark.parametrize("seed", range(60))
def test_every_answer_is_that_of_some_moment_of_the_request_or_there_is_none(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Half of the times, late fragments raise the timestamps of those after them before they come.
    monkeypatch.setattr("coldstream.manifest.commit.MAX_RELINKS", 1 + 3 * (seed % 2))
    rng = random.Random(seed)
    history = random_history(rng)
    answers: Counter[str] = Counter()
    for start in history.starts:
        table = WeakTable(history, rng.randrange(len(history.table.changes) + 1), Chance(rng))
        for one in (rng.choice(history.starts), start):
            answers[rng.choice([check, check_ranges])(history, table, one, rng.choice([1, 2, 20]))] += 1
    assert answers["refused"] < answers.total() / 10


@pytest.mark.parametrize("seed", range(60))
def test_what_retention_removes_meanwhile_is_there_or_was_never_there(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a gap, never a wrong range: a removed offset is answered as one before the first."""
    monkeypatch.setattr("coldstream.manifest.commit.MAX_RELINKS", 1 + 3 * (seed % 2))
    rng = random.Random(1000 + seed)
    history = random_history(rng, removals=4)
    answers: Counter[str] = Counter()
    for start in history.starts:
        table = WeakTable(history, rng.randrange(len(history.table.changes) + 1), Chance(rng))
        for one in (rng.choice(history.starts), start):
            answers[rng.choice([check, check_ranges])(history, table, one, rng.choice([1, 2, 20]))] += 1
    assert answers["refused"] < answers.total() / 8


def removed_from_the_front() -> WeakHistory:
    """Remove all but the last fragment, with a hole after the first, and later times than what is left."""
    history = made((0, 10), (8, 40), (12, 20))
    remove_prefix(history.table, INCARNATION, 2)
    return history


def removed_and_filled() -> WeakHistory:
    """Remove the first fragment, and archive a late one between the floor and what is left."""
    history = made((0, 10), (8, 12))
    remove_prefix(history.table, INCARNATION, 1)
    history.archive.add(4, steady(2, 30, 31))
    return history


def removed_altogether_and_appended() -> WeakHistory:
    """Remove everything, and append."""
    history = made((0, 30), (4, 12))
    remove_prefix(history.table, INCARNATION, 2)
    history.archive.add(8, steady(2, 14, 15))
    return history


def deleted_and_undeleted() -> WeakHistory:
    """Delete a stream, and undo that."""
    history = made((0, 10), (4, 12))
    delete(history.table, INCARNATION)
    undelete(history.table, INCARNATION)
    return history


def late_before_an_append() -> WeakHistory:
    """Fill a hole with a late entry, then append one that is as late."""
    return made((0, 10), (8, 12), (4, 40), (12, 41))


def late_before_the_first() -> WeakHistory:
    """Put late entries before all that is archived, from the last to the first."""
    return made((12, 20), (8, 30), (4, 31), (0, 5))


def filled_from_its_ends() -> WeakHistory:
    """Fill a hole from its right, from its left, and then the rest."""
    return made((0, 10), (16, 20), (12, 30), (4, 15), (8, 31))


def without_messages_at_the_end() -> WeakHistory:
    """Append entries without a user chunk, with holes before them, and fill these."""
    history = made((0, 10))
    for first in (8, 16):
        history.archive.add(first, [Spec(4, 11, ChunkType.TRACKING_SNAPSHOT)])
    for first in (12, 4):
        history.archive.add(first, steady(2, 12, 13))
    return history


def lost_and_archived_after_all() -> WeakHistory:
    """Announce the loss of the offsets after the tail, and of those after these."""
    history = made((0, 10))
    for first in (4, 8):
        record_missing(history.table, STREAM, Loss(Offset(first), Offset(first + 4), "lost", NOW))
    history.archive.add(4, steady(2, 12, 13))
    return history


def made(*fragments: tuple[int, int]) -> WeakHistory:
    """Archive two chunks of two records at each first offset, from each time on."""
    history = WeakHistory()
    for first, at in fragments:
        history.archive.add(first, steady(2, at, at + 1))
    return history


HISTORIES = [
    late_before_an_append,
    late_before_the_first,
    filled_from_its_ends,
    without_messages_at_the_end,
    lost_and_archived_after_all,
    removed_from_the_front,
    removed_and_filled,
    removed_altogether_and_appended,
    deleted_and_undeleted,
]


@pytest.mark.parametrize("make", HISTORIES)
def test_every_answer_is_right_in_whichever_order_the_items_of_changes_show(make: Callable[[], WeakHistory]) -> None:
    history = make()
    answers: Counter[str] = Counter()
    for start in history.starts:
        script: Script | None = Script()
        while script is not None:
            table = WeakTable(history, len(history.table.changes) - 3, script, lag=0)
            table.write()
            answers[check(history, table, start, 20)] += 1
            script = script.next()
    assert 0 < answers["refused"] < answers.total() / 2
