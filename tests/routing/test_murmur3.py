"""The partitions of super streams."""

from __future__ import annotations

from coldstream.routing.murmur3 import partition_of

CLIENTS = {
    "hello1": 1,
    "hello2": 0,
    "hello3": 1,
    "hello4": 2,
    "hello5": 0,
    "hello6": 2,
    "hello7": 0,
    "hello8": 1,
    "hello9": 0,
    "hello10": 2,
    "hello88": 1,
}
"""What RabbitMQ's stream clients for Go and .NET expect of themselves, with three partitions."""


def test_partitions_are_those_of_the_clients() -> None:
    assert {key: partition_of(key, 3) for key in CLIENTS} == CLIENTS


def test_every_key_has_a_partition() -> None:
    assert {partition_of(f"größe {number}", 7) for number in range(200)} == set(range(7))
    assert partition_of("", 5) in range(5)
