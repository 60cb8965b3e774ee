from __future__ import annotations

import socket

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.listening import check_no_loop, hold_address, listen_at


def test_an_address_that_is_held_is_shared_by_those_who_listen_and_takes_no_connection_itself() -> None:
    with hold_address(HostPort("127.0.0.1", 0)) as held:
        address = HostPort(*held.getsockname())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port), 5)
        with listen_at(address), listen_at(address), socket.create_connection((address.host, address.port), 5):
            pass


def test_an_address_at_which_another_gateway_listens_is_refused() -> None:
    with hold_address(HostPort("127.0.0.1", 0)) as held, listen_at(HostPort(*held.getsockname())) as listening:
        address = HostPort(*listening.getsockname())
        with pytest.raises(InvalidSettingError, match=f"--listen: {address}: Address already in use"):
            hold_address(address)


def test_an_address_that_others_have_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(InvalidSettingError, match="--listen"):
        hold_address(HostPort(*other.getsockname()))


def test_a_host_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="--listen"):
        hold_address(HostPort("no-such-host.invalid", 5552))


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    with hold_address(HostPort("::", 0)) as held:
        port = held.getsockname()[1]
        with listen_at(HostPort("::", port)), socket.create_connection(("127.0.0.1", port), 5):
            pass


@pytest.mark.parametrize(
    ("listen", "broker"),
    [
        ("0.0.0.0:5552", "localhost:5552"),
        ("0.0.0.0:5552", "127.0.0.3:5552"),
        ("127.0.0.1:5552", "localhost:5552"),
        ("[::]:5552", "127.0.0.1:5552"),
    ],
)
def test_a_gateway_that_would_be_its_own_broker_is_refused(listen: str, broker: str) -> None:
    there = HostPort.parse("--broker", broker)
    with pytest.raises(InvalidSettingError, match=f"^--broker: {broker} is where this gateway listens"):
        check_no_loop(HostPort.parse("--listen", listen), [HostPort("192.0.2.1", 5552), there])


@pytest.mark.parametrize(
    ("listen", "broker"),
    [
        ("0.0.0.0:5562", "localhost:5552"),
        ("127.0.0.1:5552", "127.0.0.2:5552"),
        ("0.0.0.0:5552", "192.0.2.1:5552"),
        ("0.0.0.0:5552", "[::1]:5552"),
        ("0.0.0.0:5552", "no-such-host.invalid:5552"),
        ("0.0.0.0:5552", f"{'x' * 64}:5552"),
    ],
)
def test_a_broker_elsewhere_is_none_of_its_business(listen: str, broker: str) -> None:
    check_no_loop(HostPort.parse("--listen", listen), [HostPort.parse("--broker", broker)])
