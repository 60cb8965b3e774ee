"""Which client's hash put keys where they are."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError
from coldstream.routing.detect import ClientHash, detect_hash, rstream_partition_of
from coldstream.routing.murmur3 import partition_of

KEYS = [f"größe {number}" for number in range(40)]


@pytest.mark.parametrize("partitions", [2, 3, 16])
def test_each_client_is_told_by_its_keys(partitions: int) -> None:
    ours = [(key, partition_of(key, partitions)) for key in KEYS]
    theirs = [(key, rstream_partition_of(key, partitions)) for key in KEYS]
    assert detect_hash(ours, partitions).hash is ClientHash.MURMUR3
    assert detect_hash(theirs, partitions).hash is ClientHash.RSTREAM
    assert detect_hash([*ours, *ours], partitions).count == len(KEYS)


def test_both_clients_and_neither_are_told() -> None:
    ours = [(key, partition_of(key, 16)) for key in KEYS[:20]]
    theirs = [(key, rstream_partition_of(key, 16)) for key in KEYS[20:]]
    assert detect_hash(ours + theirs, 16).hash is ClientHash.MIXED
    other = next(place for place in range(16) if place not in (partition_of("a", 16), rstream_partition_of("a", 16)))
    found = detect_hash([*ours, ("a", other)], 16)
    assert (found.hash, found.neither) == (ClientHash.NEITHER, 1)


@pytest.mark.parametrize("samples", [[], [("a", partition_of("a", 2))]])
def test_too_few_tell_nothing(samples: list[tuple[str, int]]) -> None:
    assert detect_hash(samples, 2).hash is ClientHash.UNKNOWN
    assert detect_hash([(key, 0) for key in KEYS], 1).hash is ClientHash.UNKNOWN


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="partition"):
        detect_hash([("a", 2)], 2)
