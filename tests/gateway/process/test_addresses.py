from __future__ import annotations

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.addresses import HostPort, NodeAddress


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("broker-1:5552", "broker-1", 5552),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("[::1]:65535", "::1", 65535),
        (" брокер:1 ", "брокер", 1),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    found = HostPort.parse("--listen", text)
    assert (found.host, found.port) == (host, port)
    assert str(found) == text.strip()


@pytest.mark.parametrize("text", ["", ":", "broker", "broker:", ":5552", "::1:5552", "a b:1", "broker:-1", "broker:٣"])
def test_what_is_no_address_is_refused_and_the_option_named(text: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"--listen: .* is not HOST:PORT"):
        HostPort.parse("--listen", text)


def test_a_port_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="no such port"):
        HostPort.parse("--listen", "broker:65536")


@pytest.mark.parametrize(("text", "found"), [("broker", "broker:5552"), ("[::1]", "[::1]:5552"), ("b:1", "b:1")])
def test_where_there_is_a_default_the_port_may_be_left_out(text: str, found: str) -> None:
    assert str(HostPort.parse("--broker", text, default_port=5552)) == found


def test_a_nodes_address_is_two() -> None:
    found = NodeAddress.parse("rabbit-1:5552=[::1]:5553")
    assert found == NodeAddress(HostPort("rabbit-1", 5552), HostPort("::1", 5553))
    with pytest.raises(InvalidSettingError, match="--node"):
        NodeAddress.parse("rabbit-1:5552")
