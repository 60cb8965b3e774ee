"""A new connection always gets room: of the peer that has most, where there is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from coldstream.web.bounded_connections import BoundedConnections


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    pairs = [socket.socketpair() for _ in range(6)]
    yield [ours for ours, _ in pairs]
    for pair in pairs:
        for one in pair:
            one.close()


def is_broken_off(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


def broken_off(sockets: list[socket.socket]) -> list[int]:
    return [number for number, connection in enumerate(sockets) if is_broken_off(connection)]


def test_a_peer_pushes_out_its_own_oldest(sockets):
    connections = BoundedConnections(limit=10, limit_of_peer=2)
    for connection in sockets[:2]:
        connections.admit(connection, "10.0.0.1")
    connections.admit(sockets[2], "10.0.0.2")
    connections.admit(sockets[3], "10.0.0.1")
    assert broken_off(sockets) == [0]


def test_who_has_most_makes_room_for_others(sockets):
    connections = BoundedConnections(limit=4, limit_of_peer=3)
    connections.admit(sockets[0], "10.0.0.2")
    for connection in sockets[1:4]:
        connections.admit(connection, "10.0.0.1")
    connections.admit(sockets[4], "10.0.0.3")
    assert broken_off(sockets) == [1]


def test_addresses_of_one_ipv6_network_are_one_peer_and_those_of_ipv4_are_their_own(sockets):
    connections = BoundedConnections(limit=10, limit_of_peer=1)
    for connection, address in zip(
        sockets, ["2001:db8::1", "2001:db8::2", "fe80::1%eth0", "::ffff:10.0.0.1", "10.0.0.2", "10.0.0.1"], strict=True
    ):
        connections.admit(connection, address)
    assert broken_off(sockets) == [0, 3]


def test_what_is_done_counts_no_more(sockets):
    connections = BoundedConnections(limit=1, limit_of_peer=1)
    connections.admit(sockets[0], "10.0.0.1")
    connections.remove(sockets[0])
    connections.remove(sockets[0])
    connections.admit(sockets[1], "10.0.0.1")
    assert broken_off(sockets) == []
    assert len(connections) == 1


def test_what_takes_too_long_is_broken_off(sockets):
    connections = BoundedConnections()
    connections.admit(sockets[0], "a name")
    connections.break_off_late(3600)
    assert broken_off(sockets) == []
    connections.break_off_late(-1)
    assert broken_off(sockets) == [0]
    assert len(connections) == 0
