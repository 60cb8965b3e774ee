"""What a real broker has of a stream; and one that is not there."""

from __future__ import annotations

import socket

from coldstream.browse.broker_probe import probe_broker
from coldstream.browse.spans import BrokerOffsets
from coldstream.live.address import BrokerAddress
from tests.support.broker import Broker


def address_of(broker: Broker) -> BrokerAddress:
    return BrokerAddress.from_uri(f"rabbitmq-stream://guest:guest@{broker.host}:{broker.stream_port}")


def test_a_broker_tells_first_and_committed_offset_of_a_stream(broker: Broker) -> None:
    with broker.connect() as streams:
        streams.create_stream("browse-probe", max_segment_bytes=100_000)
        assert probe_broker(address_of(broker), "/", "browse-probe") == BrokerOffsets()
        streams.publish("browse-probe", [b"one", b"two", b"three"])
        assert probe_broker(address_of(broker), "/", "browse-probe") == BrokerOffsets(0, 3)  # type: ignore[arg-type]


def test_a_stream_that_the_broker_lacks_is_a_problem_and_no_error(broker: Broker) -> None:
    found = probe_broker(address_of(broker), "/", "browse-none")
    assert (found.first_offset, found.next_offset) == (None, None)
    assert found.problem is not None
    assert "browse-none" in found.problem


def test_a_refused_login_is_a_problem_that_does_not_show_the_password(broker: Broker) -> None:
    address = BrokerAddress(((broker.host, broker.stream_port),), "guest", "hunter2")
    found = probe_broker(address, "/", "browse-probe")
    assert found.problem is not None
    assert "hunter2" not in found.problem


def test_a_host_that_does_not_answer_is_a_problem_within_the_time_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = BrokerAddress((("127.0.0.1", silent.getsockname()[1]),))
        found = probe_broker(address, "/", "orders", timeout_s=0.2)
    assert found.problem is not None
    assert "no answer within 0.2 s" in found.problem


def test_a_closed_port_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert probe_broker(BrokerAddress((("127.0.0.1", port),)), "/", "orders").problem is not None
