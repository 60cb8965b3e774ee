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


def test_a_position_is_not_known_before_the_partitions_are() -> None:
    items = BatchItems(())
    assert items.offsets is None
    items.expect_partition(0, "orders-0", None)
    assert items.offsets is None
    items.pass_over(0, Offset(3))
    assert items.offsets == {0: 3}


def test_partitions_are_added_while_others_look() -> None:
    items = BatchItems(())
    items.expect_partition(0, "orders-0", Offset(0))
    streams = iter(items.streams)
    assert next(streams) == "orders-0"
    items.expect_partition(1, "orders-0", Offset(0))
    assert list(streams) == []
    assert items.streams.keys() == {"orders-0#0", "orders-0"}


def test_a_message_of_an_earlier_partition_is_not_taken_for_one_of_the_next_of_that_name() -> None:
    items = BatchItems(())
    for number in range(2):
        items.expect_partition(number, "orders-0", Offset(0))
    names = []
    for number in range(2):
        items.load(ChunkBatch("orders-0", (), "test", partition=number))
        names.append(items.stream)
    assert names == ["orders-0#0", "orders-0"]


def test_without_a_group_nobody_is_asked_before_a_message_and_nothing_is_busy() -> None:
    items = BatchItems(())
    items.expect_partition(0, "orders-0", Offset(0))
    items.load(ChunkBatch("orders-0", (chunk(0, 2),), "here", partition=0))
    assert next(items.messages).offset == 0
    assert items.busy is None


@pytest.mark.parametrize("kind", ["messages", "chunks"])
def test_what_a_tenure_no_longer_covers_is_not_given_out_nor_counted(kind: str) -> None:
    items = BatchItems(())
    items.expect_partition(0, "orders-0", Offset(0))
    answers = iter([True, True, False, True, True])
    items.may_give = lambda _number, _tenure: next(answers)  # also at the load
    items.load(ChunkBatch("orders-0", (chunk(0, 1), chunk(1, 1), chunk(2, 1)), "here", partition=0))
    given = getattr(items, kind)
    next(given)
    assert items.busy == 0
    assert next(given, None) is None
    assert items.busy is None
    assert items.streams["orders-0"].position == 1


def test_a_batch_of_a_tenure_that_is_over_is_not_taken() -> None:
    items = BatchItems(())
    items.expect_partition(0, "orders-0", Offset(0))
    items.may_give = lambda _number, _tenure: False
    items.load(ChunkBatch("orders-0", (chunk(0, 1),), "here", partition=0))
    assert list(items.messages) == []
    assert items.offsets == {0: 0}
