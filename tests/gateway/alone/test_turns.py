"""Whose turn it is: every decision, without a table."""

from __future__ import annotations

import pytest

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.gateway.alone.turns import TurnName, Turns, TurnTaker

A, B, C = (TurnTaker(session * 32, number) for session, number in (("a", 1), ("b", 1), ("c", 7)))
NAME = TurnName("/", "orders", "readers")


def test_who_comes_first_is_active_and_keeps_the_turn() -> None:
    turns = Turns().joined(A, None).claimed().joined(B, None).claimed()
    assert (turns.active, turns.due, turns.epoch) == (A, A, 1)


def test_the_next_one_follows_when_the_active_one_leaves_or_is_over() -> None:
    turns = Turns().joined(A, None).joined(B, None).claimed()
    assert turns.left(A).claimed() == Turns((B,), B, 2)
    assert turns.living({B.session}).claimed() == Turns((B,), B, 2)


def test_nobody_is_given_a_turn_that_somebody_has() -> None:
    turns = Turns().joined(A, 1).claimed().joined(B, 1)
    assert turns.due == B
    assert turns.claimed().active == A
    assert turns.released(B) == turns
    assert turns.released(A).claimed() == Turns((A, B), B, 2, 1)


def test_partitions_of_a_super_stream_are_shared_among_their_consumers() -> None:
    due = [Turns().joined(A, place).joined(B, place).joined(C, place).due for place in range(6)]
    assert due == [A, B, C, A, B, C]


def test_to_join_twice_is_to_join_once() -> None:
    turns = Turns().joined(A, None)
    assert turns.joined(A, None) is turns


def test_bytes_are_read_as_they_were_written() -> None:
    for turns in (Turns(), Turns((A, B, C), B, 9, 2)):
        assert Turns.from_bytes(turns.to_bytes(NAME), source="item") == turns


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "waiting": 3}'])
def test_malformed_bytes_name_their_item(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="item x"):
        Turns.from_bytes(data, source="item x")


def test_a_later_version_is_refused() -> None:
    with pytest.raises(BadVersionError):
        Turns.from_bytes(b'{"version": 2}', source="item")


def test_names_that_run_into_each_other_have_items_of_their_own() -> None:
    names = [TurnName("a", "bc", "d"), TurnName("ab", "c", "d"), TurnName("a", "b", "cd"), TurnName("a", "bc", "e")]
    assert len({name.key for name in names}) == len(names)
