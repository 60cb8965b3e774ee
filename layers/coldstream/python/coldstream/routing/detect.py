"""Which clients wrote a super stream: those of Java, Go, .NET and Rust, which agree, or rstream, which does not.

rstream 1.1.1 takes the 128-bit murmur3 of the key as UTF-16 with a byte order mark, as one little-endian number.
Producers of both kinds at one super stream send one key to two partitions: the order of keys is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import mmh3

from coldstream.errors import InvalidInputError
from coldstream.routing.murmur3 import SEED, partition_of

SURE_ODDS = 1000
"""Another hash fits samples by chance once in so many cases, at most, before anything is said of them."""


class ClientHash(StrEnum):
    """What samples say about the hash of their producers."""

    MURMUR3 = "murmur3"
    """All fit the clients of Java, Go, .NET and Rust."""

    RSTREAM = "rstream"
    """All fit rstream."""

    MIXED = "mixed"
    """Each fits one of the two, and both are there."""

    NEITHER = "neither"
    """Some fit neither: another client, another number of partitions, or the key is not what was hashed."""

    UNKNOWN = "unknown"
    """Too few to tell: no samples, one partition, or both hashes fit by chance."""


@dataclass(frozen=True, slots=True)
class HashSamples:
    """What was found, and how many samples fit what: both, only one, or none of the two."""

    hash: ClientHash
    both: int
    only_murmur3: int
    only_rstream: int
    neither: int

    @property
    def count(self) -> int:
        """All samples."""
        return self.both + self.only_murmur3 + self.only_rstream + self.neither


def rstream_partition_of(key: str, partitions: int) -> int:
    """Return the number of the partition that rstream chooses for a routing key."""
    order_mark_first = (b"\xff\xfe" if sys.byteorder == "little" else b"\xfe\xff") + key.encode(
        f"utf-16-{sys.byteorder[0]}e"
    )
    return int.from_bytes(mmh3.hash_bytes(order_mark_first, SEED), "little") % partitions


def detect_hash(samples: Iterable[tuple[str, int]], partitions: int) -> HashSamples:
    """Tell which hash put keys where they are: `samples` are routing keys and the partition's place, from 0 on.

    A key that is there more than once counts once a place. Ten different keys are enough with two partitions, three
    with 16. One sample that fits neither says NEITHER; with one that fits only each, MIXED. Samples
    must be of one version of the map: those from before a change of the number fit neither. Raises InvalidInputError
    for a place that is not 0 up to, not including, `partitions`.
    """
    both = only_murmur3 = only_rstream = neither = 0
    for key, place in set(samples):
        if not 0 <= place < partitions:
            raise InvalidInputError("partition", f"{place} is not 0 to {partitions - 1}")
        is_murmur3 = partition_of(key, partitions) == place
        is_rstream = rstream_partition_of(key, partitions) == place
        both += is_murmur3 and is_rstream
        only_murmur3 += is_murmur3 and not is_rstream
        only_rstream += is_rstream and not is_murmur3
        neither += not is_murmur3 and not is_rstream
    found = _verdict(both, only_murmur3, only_rstream, neither, partitions)
    return HashSamples(found, both, only_murmur3, only_rstream, neither)


def _verdict(both: int, only_murmur3: int, only_rstream: int, neither: int, partitions: int) -> ClientHash:
    if neither:
        return ClientHash.NEITHER
    if only_murmur3 and only_rstream:
        # With few partitions a third hash fits one of the two by chance often: 3 of 4 samples with two partitions.
        chance = 1 - (1 - 1 / partitions) ** 2
        return _sure(ClientHash.MIXED, chance ** (both + only_murmur3 + only_rstream))
    if not only_murmur3 and not only_rstream:
        return ClientHash.UNKNOWN
    fitting = ClientHash.MURMUR3 if only_murmur3 else ClientHash.RSTREAM
    return _sure(fitting, partitions ** -float(both + only_murmur3 + only_rstream))


def _sure(found: ClientHash, chance: float) -> ClientHash:
    return found if chance * SURE_ODDS <= 1 else ClientHash.UNKNOWN
