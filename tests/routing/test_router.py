"""Routers without a broker: nothing bound, weights, releases, and a seeded chance."""

from __future__ import annotations

from random import Random

import pytest

from coldstream.errors import InvalidInputError, NoRouteError
from coldstream.manifest.shard_map import ShardHash
from coldstream.routing.consistent import HashOn, HashProperty, buckets, sorted_bindings
from coldstream.routing.message import Binding, Destination, HeaderValue, RoutedMessage
from coldstream.routing.modulus import ModulusRouter
from coldstream.routing.router import router_of

A, B = Destination("a"), Destination("b")


@pytest.mark.parametrize("hash_", ShardHash)
def test_nothing_bound_is_an_error_with_the_key(hash_: ShardHash) -> None:
    with pytest.raises(NoRouteError) as caught:
        router_of(hash_, []).destinations(RoutedMessage("größe"))
    assert caught.value.routing_key == "größe"


def test_a_destination_has_the_buckets_of_its_first_binding() -> None:
    assert buckets([Binding(A, "1"), Binding(B, "2"), Binding(A, "3")]) == [A, B, B]
    assert sorted_bindings([Binding(A, "2"), Binding(B, "10")]) == [Binding(B, "10"), Binding(A, "2")]
    with pytest.raises(InvalidInputError, match="weight"):
        buckets([Binding(A, "0")])


def test_binding_keys_order_the_destinations_of_earlier_releases() -> None:
    message = RoutedMessage("a")
    bindings = [Binding(A, "y"), Binding(B, "x")]
    earlier = ModulusRouter(bindings, version=(4, 0)).destinations(message)
    assert earlier != ModulusRouter(bindings).destinations(message)


def test_a_header_has_its_type_in_earlier_releases() -> None:
    message = RoutedMessage("", headers={"key": HeaderValue("longstr", b"x")})
    assert HashOn(header="key").term(message, (3, 12)) == ("longstr", b"x")
    assert HashOn(header="key").term(message, (3, 13)) == b"x"
    with pytest.raises(InvalidInputError):
        HashOn("key", HashProperty.TIMESTAMP)


def test_chance_can_be_had_again_and_reaches_all() -> None:
    bindings = [Binding(A), Binding(B)]
    once, again = (router_of(ShardHash.RANDOM, bindings, random=Random(1)) for _ in range(2))
    found = [once.destinations(RoutedMessage("x")) for _ in range(50)]
    assert found == [again.destinations(RoutedMessage("x")) for _ in range(50)]
    assert set(found) == {(A,), (B,)}
