"""Where a replay puts archived messages."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidSettingError, ShardChangeError
from coldstream.manifest.shard_map import Partition
from coldstream.replay.routing import RoutingKey
from coldstream.shards.definition_file import definition_of
from coldstream.shards.replay import place_of, routing_key_of
from tests.shards.conftest import defined

STREAMS = 'name = "orders"\nkind = "streams"\nshards = 3\n'
TARGETS = [Partition(number, f"orders-v2-{number:04}") for number in range(3)]


def test_behind_an_exchange_the_key_is_the_published_one() -> None:
    assert routing_key_of(defined(STREAMS)) == RoutingKey("message_annotations", "x-routing-key")


def test_consistent_by_a_property_hashes_that() -> None:
    found = defined(f'{STREAMS}hash = "consistent"\nproperty = "correlation_id"')
    assert routing_key_of(found) == RoutingKey("properties", "correlation_id")


@pytest.mark.parametrize("text", ['header = "customer"', 'property = "timestamp"'])
def test_what_each_release_hashes_in_another_way_is_refused(text: str) -> None:
    with pytest.raises(ShardChangeError, match="each release in another way"):
        routing_key_of(defined(f'{STREAMS}hash = "consistent"\n{text}'))


def test_the_field_is_kept_in_the_definition() -> None:
    text = 'name = "orders"\nkind = "super-stream"\nshards = 3\nrouting_key_field = "application_properties.customer"'
    found = defined(text)
    assert definition_of(found.to_text()) == found
    assert str(routing_key_of(found)) == "application_properties.customer"


@pytest.mark.parametrize(
    "text",
    [
        'kind = "queues"\nrouting_key_field = "properties.message_id"',
        'kind = "streams"\nrouting_key_field = "message_id"',
        'kind = "streams"\nrouting_key_field = 3',
    ],
)
def test_a_field_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettingError, match="routing_key_field"):
        defined(f'name = "orders"\nshards = 3\n{text}')


def test_a_random_choice_is_the_same_whenever_it_is_made() -> None:
    place = place_of(defined(f'{STREAMS}hash = "random"'), TARGETS)

    class Numbered:
        def __init__(self, offset: int) -> None:
            self.offset = offset

    places = [place(Numbered(offset)) for offset in range(9)]  # type: ignore[arg-type]
    assert places == [0, 1, 2] * 3
