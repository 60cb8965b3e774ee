"""The time window: which messages are of it, at its exact borders."""

from __future__ import annotations

import pytest
from rstream import AMQPMessage, Properties

from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.replay.window import SLACK_MS, TimeWindow
from coldstream.units import ChunkId, Epoch, TimestampMs

CHUNK_TIME = 5_000


def one(raw: bytes) -> Message:
    _, chunk = make_chunk([raw], chunk_id=ChunkId(7), timestamp=TimestampMs(CHUNK_TIME), epoch=Epoch(1))
    (found,) = [message for each in iter_chunks(chunk, source="test") for message in messages(each, source="test")]
    return found


def created(time: int | None) -> Message:
    return one(bytes(AMQPMessage(properties=Properties(creation_time=time, message_id="x"), body=b"x")))


@pytest.mark.parametrize(("time", "is_in"), [(999, False), (1000, True), (1999, True), (2000, False), (-5, False)])
def test_the_start_belongs_to_it_and_the_end_does_not(time: int, *, is_in: bool) -> None:
    window = TimeWindow(TimestampMs(1000), TimestampMs(2000))
    assert window.takes_time(window.time_of(created(time))) is is_in
    assert window.is_late(window.time_of(created(time))) is (time >= 2000)


@pytest.mark.parametrize("message", [created(None), one(b"no AMQP at all"), one(bytes.fromhex("005373c0ff")), one(b"")])
def test_what_has_no_time_of_its_own_has_that_of_its_chunk(message: Message) -> None:
    assert TimeWindow().time_of(message) == CHUNK_TIME


def test_by_chunk_a_messages_own_time_does_not_count() -> None:
    assert TimeWindow(by_message=False).time_of(created(3)) == CHUNK_TIME


def test_the_scan_goes_on_past_the_end_for_messages_that_came_late() -> None:
    end = TimestampMs(2000)
    assert TimeWindow(end=end).scan_end == end + SLACK_MS
    assert TimeWindow(end=end, by_message=False).scan_end == end
    assert TimeWindow().scan_end is None


def test_other_windows_have_another_identity() -> None:
    times = [None, TimestampMs(1), TimestampMs(2)]
    windows = [TimeWindow(start, end, way) for start in times for end in times for way in (True, False)]
    assert len({window.identity for window in windows}) == len(windows)
