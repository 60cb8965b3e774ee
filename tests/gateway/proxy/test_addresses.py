"""Where clients are told to connect."""

from __future__ import annotations

import pytest

from coldstream.gateway.frames.answers import MetadataAnswer, OpenAnswer
from coldstream.gateway.proxy.addresses import GatewayAddresses

METADATA = MetadataAnswer(
    3,
    ((0, "rabbit-1", 5552), (1, "rabbit-2", 5552)),
    (("orders", 1, 0, (1,)), ("missing", 2, 0xFFFF, ())),
)
OPEN = OpenAnswer(4, 1, {"advertised_host": "rabbit-1", "advertised_port": "5552", "other": "é"})


def test_one_address_stands_for_all_nodes() -> None:
    ours = GatewayAddresses(("balancer", 443))
    assert ours.in_metadata(METADATA).brokers == ((0, "balancer", 443), (1, "balancer", 443))
    assert ours.in_metadata(METADATA).streams == METADATA.streams
    assert ours.in_open(OPEN).properties == {"advertised_host": "balancer", "advertised_port": "443", "other": "é"}


def test_each_node_has_the_address_that_stands_for_it(caplog: pytest.LogCaptureFixture) -> None:
    ours = GatewayAddresses(nodes={("rabbit-1", 5552): ("gateway-1", 6000), ("rabbit-3", 5552): ("gateway-3", 6000)})
    assert ours.in_metadata(METADATA).brokers == ((0, "gateway-1", 6000), (1, "rabbit-2", 5552))
    assert ours.in_open(OPEN).properties["advertised_port"] == "6000"
    assert ours.in_metadata(METADATA)
    assert [vars(record)["broker"] for record in caplog.records] == ["rabbit-2:5552"]


def test_without_any_it_is_the_address_that_the_client_came_to() -> None:
    ours = GatewayAddresses().seen_from(("10.0.0.7", 5552))
    assert ours.of(("rabbit-1", 5551)) == ("10.0.0.7", 5552)
    nodes = GatewayAddresses(nodes={("rabbit-1", 5552): ("gateway-1", 6000)})
    assert nodes.seen_from(("10.0.0.7", 5552)) is nodes


def test_an_answer_without_an_address_stays_as_it_is() -> None:
    ours = GatewayAddresses(("balancer", 443))
    assert ours.in_open(OpenAnswer(4, 1, {})) == OpenAnswer(4, 1, {})
    odd = OpenAnswer(4, 1, {"advertised_host": "h", "advertised_port": "none"})
    assert ours.in_open(odd) == odd


def test_the_broker_writes_streams_that_are_missing_as_we_do() -> None:
    encoded = METADATA.to_bytes()
    assert MetadataAnswer.from_body(encoded[4:]) == METADATA
    assert encoded.endswith(b"\x00\x07missing\x00\x02\xff\xff\x00\x00\x00\x00")
