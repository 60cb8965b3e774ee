"""Routing keys."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidQueryError
from coldstream.replay.routing import RoutingKey


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
