from __future__ import annotations

import pytest

from coldstream.consumer.batch import ChunkBatch
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


def test_the_position_is_behind_the_last_message_given() -> None:
    intake = BatchItems(["orders"])
    intake.load(ChunkBatch("orders", (chunk(10, 5), chunk(20, 5)), "here", Offset(12)))
    seen = [(message.offset, intake.streams["orders"].position) for message in intake.messages]
    assert seen == [(offset, offset + 1) for offset in (12, 13, 14, 20, 21, 22, 23, 24)]
    assert intake.streams["orders"].position == 25


def test_an_iteration_that_was_left_goes_on_with_the_next_message() -> None:
    intake = BatchItems(["orders"])
    intake.load(ChunkBatch("orders", (chunk(0, 5),), "here"))
    for message in intake.messages:
        if message.offset == 2:
            break
    assert [message.offset for message in intake.messages] == [3, 4]


def test_chunks_whose_messages_are_not_wanted_are_behind_the_position() -> None:
    intake = BatchItems(["orders"])
    intake.load(ChunkBatch("orders", (chunk(0, 5),), "here", Offset(9)))
    assert list(intake.messages) == []
    assert intake.streams["orders"].position == 5


def test_gaps_are_told_by_stream_and_together() -> None:
    intake = BatchItems(["a", "b"])
    gap = Gap(Offset(3), Offset(5), "lost")
    intake.load(ChunkBatch("b", gap=gap))
    assert (intake.streams["a"].gaps, intake.streams["b"].gaps, intake.gaps) == ([], [gap], [gap])


def test_messages_and_chunks_do_not_take_turns() -> None:
    intake = BatchItems(["orders"])
    intake.begin("chunks")
    intake.begin("chunks")
    with pytest.raises(RuntimeError):
        intake.begin("messages")
