from __future__ import annotations

import pytest

from coldstream.consumer.batch import ChunkBatch, SkippedGap
from coldstream.consumer.items import BatchItems
from coldstream.format.chunk import Chunk
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import Gap
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

NOTHING = memoryview(b"")


def chunk(first: int, messages: int) -> Chunk:
    entries = [b"%d" % offset for offset in range(first, first + messages)]
    header, data = make_chunk(entries, chunk_id=ChunkId(first), timestamp=TimestampMs(5), epoch=Epoch(1))
    return Chunk(header, 0, NOTHING, memoryview(data)[48:], NOTHING)


def test_the_position_is_after_the_last_message_given() -> None:
    items = BatchItems(["orders"])
    items.load(ChunkBatch("orders", (chunk(10, 5), chunk(20, 5)), "here", Offset(12)))
    seen = [(message.offset, items.streams["orders"].position) for message in items.messages]
    assert seen == [(offset, offset + 1) for offset in (12, 13, 14, 20, 21, 22, 23, 24)]
    assert items.streams["orders"].position == 25


def test_an_iteration_that_was_left_goes_on_with_the_next_message() -> None:
    items = BatchItems(["orders"])
    items.load(ChunkBatch("orders", (chunk(0, 5),), "here"))
    for message in items.messages:
        if message.offset == 2:
            break
    assert [message.offset for message in items.messages] == [3, 4]


def test_the_position_moves_past_chunks_without_messages_from_the_start_on() -> None:
    items = BatchItems(["orders"])
    items.load(ChunkBatch("orders", (chunk(0, 5),), "here", Offset(9)))
    assert list(items.messages) == []
    assert items.streams["orders"].position == 5


def test_gaps_are_listed_by_stream_and_all_together() -> None:
    items = BatchItems(["a", "b"])
    gap = Gap(Offset(3), Offset(5), "lost")
    items.load(SkippedGap("b", gap))
    assert (items.streams["a"].gaps, items.streams["b"].gaps, items.gaps) == ([], [gap], [gap])


def test_messages_and_chunks_do_not_take_turns() -> None:
    items = BatchItems(["orders"])
    items.begin("chunks")
    items.begin("chunks")
    with pytest.raises(RuntimeError):
        items.begin("messages")
