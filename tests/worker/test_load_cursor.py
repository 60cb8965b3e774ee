"""The cursor of a load: read back as it was written, and refused if it is another's."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.errors import CorruptionError, InvalidInputError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset, TimestampMs
from coldstream.worker.load_cursor import LoadCursor, StreamPosition


def position(name: str = "größe", **more: Any) -> StreamPosition:
    stream = StreamId("/", name, Incarnation("__x_1763700000000000000"))
    offsets = {"start": Offset(3), "first": Offset(5), "done_to": Offset(7), "end": Offset(9)}
    return StreamPosition(stream, **(offsets | more))


@pytest.mark.parametrize(
    "one",
    [
        position(),
        position(end_text="-1h", publisher="p", is_final=True),
        position(late=4, late_from=TimestampMs(11)),
    ],
)
def test_a_cursor_is_read_back_as_it_was_written(one: StreamPosition) -> None:
    cursor = LoadCursor({one.stream.incarnation: one}, "1:2:message")
    assert LoadCursor.from_mapping("/", cursor.to_mapping()) == cursor


@pytest.mark.parametrize(
    "found",
    [{"version": 2, "streams": {}, "window": ""}, {"version": 1}, {"version": 1, "streams": {"x": [1]}, "window": ""}],
)
def test_a_cursor_of_another_kind_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(CorruptionError):
        LoadCursor.from_mapping("/", found)


def test_how_far_a_stream_is_counts_from_what_was_archived() -> None:
    one = position(done_to=Offset(3))
    assert (one.offsets, one.done, one.is_done) == (4, 0, False)
    there = position(done_to=Offset(12), is_final=True)
    assert (there.done, there.is_done) == (4, True)


def test_a_cursor_that_could_outgrow_its_item_is_refused_before_anything_is_sent() -> None:
    many = {str(number): position("x" * 200) for number in range(400)}
    with pytest.raises(InvalidInputError, match="several jobs"):
        LoadCursor(many).check_size()
