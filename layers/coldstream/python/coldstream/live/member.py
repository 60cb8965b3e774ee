"""Connect to a node that has a member of a stream: the others deliver nothing of it.

The broker says where the members are, by the names that its nodes advertise. Those are connected to directly, and the
hosts of the address come after, in case the names mean nothing here. Behind a load balancer, the only way to a node is
to connect again until it is the one: nodes say who they are.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from coldstream.errors import AccessDeniedError, ColdstreamError, UnavailableError
from coldstream.live.address import BrokerAddress, place_text
from coldstream.live.connection import LiveConnection
from coldstream.live.subscription import Place
from coldstream.retry import Backoff

MAX_TRIES = 20
"""Connections through a load balancer before it is given up for now. Of five nodes, one is missed in 1 of 87."""

_FIRST_PAUSE_S = 0.02
_MAX_PAUSE_S = 0.5


async def connect_to_member(address: BrokerAddress, vhost: str, stream: str, *, name: str) -> LiveConnection:
    """Return a connection, already entered, to a node with a member of a stream, if the broker knows the stream.

    Raises UnavailableError if no such node can be reached, and whatever entering a connection raises.
    """
    connection = await _entered(address, vhost, name)
    try:
        members = await connection.member_places(stream)
    except AccessDeniedError:
        await _left(connection)
        raise
    except ColdstreamError:
        return connection  # what the caller asks of it next says what is wrong
    except BaseException:
        await _left(connection)
        raise
    if not members or connection.advertised is None or connection.advertised in members:
        return connection
    await _left(connection)
    if address.load_balanced:
        return await _balanced(address, vhost, stream, members, name=name)
    return await _direct(address, vhost, stream, members, name=name)


async def _direct(
    address: BrokerAddress, vhost: str, stream: str, members: tuple[Place, ...], *, name: str
) -> LiveConnection:
    """Try the members, in any order so that readers spread, and then the hosts of the address."""
    problems: list[str] = []
    for place in (*random.sample(members, len(members)), *address.hosts):
        try:
            connection = await _entered(replace(address, hosts=(place,)), vhost, name)
        except AccessDeniedError:
            raise
        except UnavailableError as err:
            problems.append(str(err))
            continue
        if connection.advertised in members:
            return connection
        problems.append(f"{place_text(*place)} is another node")
        await _left(connection)
    raise UnavailableError(f"{_where(stream, members)}, and none can be reached: {'; '.join(problems)}")


async def _balanced(
    address: BrokerAddress, vhost: str, stream: str, members: tuple[Place, ...], *, name: str
) -> LiveConnection:
    backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
    for _ in range(MAX_TRIES):
        await asyncio.sleep(backoff.next_delay_s())
        connection = await _entered(address, vhost, name)
        if connection.advertised in members:
            return connection
        await _left(connection)
    raise UnavailableError(
        f"{_where(stream, members)}, and {MAX_TRIES} connections through the load balancer {address} led to others"
    )


async def _entered(address: BrokerAddress, vhost: str, name: str) -> LiveConnection:
    return await LiveConnection(address, vhost, name=name).__aenter__()


async def _left(connection: LiveConnection) -> None:
    await connection.__aexit__(None, None, None)


def _where(stream: str, members: tuple[Place, ...]) -> str:
    return f"stream {stream!r}: its members are at {', '.join(place_text(*place) for place in members)}"
