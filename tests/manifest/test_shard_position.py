from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import InvalidQueryError
from coldstream.manifest.shard_position import ShardPosition
from coldstream.units import MAX_OFFSET, Offset


@pytest.mark.parametrize("text", ["v1", "v2,0:1042,1:977,2:0", f"v999999999,4095:{MAX_OFFSET}"])
def test_a_position_is_the_same_after_its_text(text: str) -> None:
    assert str(ShardPosition.from_text(text)) == text


@given(st.integers(1, 999_999_999), st.dictionaries(st.integers(0, 9999), st.integers(0, MAX_OFFSET)))
def test_any_position_comes_back_from_its_text(version: int, offsets: dict[int, int]) -> None:
    position = ShardPosition(version, {number: Offset(offset) for number, offset in offsets.items()})
    assert ShardPosition.from_text(str(position)) == position


def test_the_partitions_are_in_the_order_of_their_numbers() -> None:
    assert str(ShardPosition(3, {10: Offset(1), 9: Offset(2)})) == "v3,9:2,10:1"


def test_a_partition_that_is_not_named_is_read_from_its_beginning() -> None:
    position = ShardPosition.from_text("v2,1:977")
    assert (position.offset(1), position.offset(0)) == (977, 0)


@pytest.mark.parametrize(
    "text",
    [
        "", "v", "2,0:1", "v0", "v01", "v-1", "v1,", "v1,0", "v1,0:", "v1,:1", "v1,0:1,0:2", "v1,0:1,00:2", "v1 ,0:1",
        "v1,0:1\n", "v1,0:-1", "v1,0:1.0", f"v1,0:{MAX_OFFSET + 1}", "v1,12345:1", "v1,0:123456789012345678901",
        "v1234567890", "v1,٣:1", "v1,0:٣", "V1",
    ],
)  # fmt: skip
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError):
        ShardPosition.from_text(text)
