"""How far is read ahead: nothing at first, twice as far after each wait, half as far after waste."""

from __future__ import annotations

import pytest

from coldstream.streams.cache import read_ahead
from coldstream.streams.cache.read_ahead import ReadAhead, Readers
from coldstream.units import Offset
from tests.support.cached_chunks import life


def test_a_window_doubles_from_the_least_to_the_most() -> None:
    window = ReadAhead(0, least_bytes=10, most_bytes=50)
    seen = []
    for _ in range(5):
        window.grow()
        seen.append(window.window_bytes)
    assert seen == [10, 20, 40, 50, 50]
    assert window.wider_bytes == 50


def test_a_window_is_halved_after_waste_and_closed_below_one_block() -> None:
    window = ReadAhead(40, least_bytes=10, most_bytes=50)
    seen = []
    for _ in range(4):
        window.cool()
        seen.append(window.window_bytes)
    assert seen == [20, 10, 0, 0]


def test_whoever_comes_to_where_a_read_ended_is_its_reader_and_nobody_else_is() -> None:
    readers = Readers(least_bytes=10, most_bytes=50)
    assert readers.at(life(), Offset(5)) is None
    readers.put(life(), Offset(5), None)
    assert readers.at(life(1), Offset(5)) is None
    assert readers.at(life(), Offset(6)) is None
    found = readers.at(life(), Offset(5))
    assert found is not None
    assert (found.window_bytes, found.least_bytes, found.most_bytes) == (0, 10, 50)
    assert readers.at(life(), Offset(5)) is None


def test_of_two_readers_at_one_place_the_wider_window_stays() -> None:
    readers = Readers()
    wide, narrow = ReadAhead(40), ReadAhead(20)
    readers.put(life(), Offset(5), wide)
    readers.put(life(), Offset(5), narrow)
    readers.put(life(), Offset(5), None)
    assert readers.at(life(), Offset(5)) is wide
    readers.put(life(), Offset(6), narrow)
    readers.put(life(), Offset(6), wide)
    assert readers.at(life(), Offset(6)) is wide


def test_the_reader_that_read_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MAX_READERS", 3)
    readers = Readers()
    for offset in range(3):
        readers.put(life(), Offset(offset), None)
    readers.put(life(), Offset(0), None)  # again
    readers.put(life(), Offset(3), None)
    assert [readers.at(life(), Offset(offset)) is not None for offset in range(4)] == [True, False, True, True]
