"""Which stream is flushed next: the busy ones and the old ones, in turns."""

from __future__ import annotations

from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.flush.unflushed import UnflushedStreams
from coldstream.units import Offset

OPTIONS = FlushOptions(fragment_bytes=1000, flush_age_s=600, wal_bytes=1 << 20)
NOBODY: frozenset[Incarnation] = frozenset()


def named(name: str) -> StreamId:
    return StreamId("/", name, Incarnation(f"__{name}_1763700000000000000"))


BUSY, QUIET, OTHER = named("busy"), named("quiet"), named("other")


def test_a_stream_that_always_fills_fragments_does_not_keep_an_old_one_waiting() -> None:
    unflushed = UnflushedStreams(OPTIONS)
    unflushed.add(QUIET, Offset(1), 10, now_s=0)
    flushed = []
    for second in range(600, 604):
        unflushed.add(BUSY, Offset(second), 5000, now_s=second)
        due = unflushed.next_due(second, pressed=False, but=NOBODY)
        assert due is not None
        unflushed.take(due.incarnation)
        flushed.append(due)
    assert flushed[:2] in ([QUIET, BUSY], [BUSY, QUIET])
    assert flushed[2:] == [BUSY, BUSY]


def test_nor_does_pressure_that_never_ends() -> None:
    unflushed = UnflushedStreams(OPTIONS)
    unflushed.add(QUIET, Offset(1), 10, now_s=0)
    flushed = set()
    for second in range(600, 602):
        unflushed.add(BUSY, Offset(second), 5000, now_s=second)
        due = unflushed.next_due(second, pressed=True, but=NOBODY)
        assert due is not None
        unflushed.take(due.incarnation)
        flushed.add(due)
    assert flushed == {QUIET, BUSY}


def test_a_stream_is_old_by_the_bytes_of_others_too() -> None:
    unflushed = UnflushedStreams(OPTIONS)
    unflushed.add(QUIET, Offset(1), 10, now_s=0)
    unflushed.add(OTHER, Offset(1), 900, now_s=1)
    assert unflushed.next_due(1, pressed=False, but=NOBODY) is None
    for number in range(2, 1300):
        unflushed.add(OTHER, Offset(number), 900, now_s=1)
        unflushed.take(OTHER.incarnation)
    assert unflushed.next_due(1, pressed=False, but=NOBODY) == QUIET
    assert unflushed.next_due(1, pressed=False, but=frozenset({QUIET.incarnation})) is None


def test_what_is_put_back_is_the_oldest_again() -> None:
    unflushed = UnflushedStreams(OPTIONS)
    unflushed.add(QUIET, Offset(5), 10, now_s=0)
    taken = unflushed.take(QUIET.incarnation)
    assert taken is not None
    unflushed.add(OTHER, Offset(3), 10, now_s=1)
    unflushed.add(QUIET, Offset(9), 20, now_s=2)
    unflushed.put_back(taken)
    assert unflushed.size_bytes == 40
    assert unflushed.next_due(600, pressed=False, but=NOBODY) == QUIET
    again = unflushed.take(QUIET.incarnation)
    assert again is not None
    assert (again.next_offset, again.size_bytes, again.since_s) == (9, 30, 0)
