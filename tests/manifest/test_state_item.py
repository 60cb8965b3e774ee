from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError
from coldstream.manifest.state_item import MAX_STATE_BYTES, StateItem


@pytest.mark.parametrize("partition", ["#shards", "#shard-events#" + "0a" * 32, "#groups#" + "f" * 64])
def test_a_partition_is_a_word_and_perhaps_a_hash(partition: str) -> None:
    assert StateItem(partition, "x", 1, bytes(MAX_STATE_BYTES)).partition == partition


@pytest.mark.parametrize(
    "partition", ["", "#", "shards", "#Shards", "#shards#", "#shards#abc", "#x#" + "0" * 65, "#x#" + "A" * 64, "#a\n"]
)
def test_any_other_partition_is_refused(partition: str) -> None:
    with pytest.raises(InvalidInputError, match="partition"):
        StateItem(partition, "x", 1, b"")


@pytest.mark.parametrize("revision", [0, -1])
def test_revisions_begin_at_one(revision: int) -> None:
    with pytest.raises(InvalidInputError, match="revision"):
        StateItem("#x", "x", revision, b"")


def test_more_bytes_than_an_item_holds_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="300001"):
        StateItem("#x", "x", 1, bytes(MAX_STATE_BYTES + 1))


@pytest.mark.parametrize("key", ["", "x" * 1025, "é" * 513, "\ud800"])
def test_a_key_that_no_item_can_have_is_refused(key: str) -> None:
    with pytest.raises(InvalidInputError, match="key"):
        StateItem("#x", key, 1, b"")


def test_the_longest_key_is_taken() -> None:
    assert StateItem("#x", "x" * 1024, 1, b"").key == "x" * 1024
