"""Routing keys, and the partitions that they lead to."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidQueryError
from coldstream.replay.routing import RoutingKey, partition_of

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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("properties.message_id", RoutingKey()),
        ("properties.group-id", RoutingKey("properties", "group_id")),
        ("application_properties.user-id", RoutingKey("application_properties", "user-id")),
        ("message_annotations.x-routing-key", RoutingKey("message_annotations", "x-routing-key")),
        ("application_properties.a.b", RoutingKey("application_properties", "a.b")),
    ],
)
def test_a_key_is_named_by_its_section(text: str, key: RoutingKey) -> None:
    assert RoutingKey.parse(text) == key


@pytest.mark.parametrize("text", ["", "message_id", "properties.", "properties.colour", "body.x", "header.priority"])
def test_a_place_that_messages_have_not_is_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError):
        RoutingKey.parse(text)
