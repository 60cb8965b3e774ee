"""The checks of the broker: that it takes the login, lists its streams, and lets them be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from coldstream.agent.monitor.check import Check, CheckedPart, CheckOutcome, failed, ok, unknown
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.agent.proof.management import BrokerStream, ManagementClient
from coldstream.errors import (
    BrokerRefusedError,
    ColdstreamError,
    LoginRefusedError,
    NotFoundError,
    VhostRefusedError,
)
from coldstream.live.address import place_text
from coldstream.live.connection import LiveConnection
from coldstream.manifest.spec import FIRST

STREAMS_AT_ONCE = 32
MAX_NAMED = 20
"""Streams that cannot be read and are listed one by one; beyond that, their number is given."""

CONNECTION_NAME = "coldstream agent --check"

LOGIN = "user and password of COLDSTREAM_BROKER, percent-encoded; `rabbitmqctl list_users` has the users"
REACH = "is the broker up, its plugin rabbitmq_stream enabled, host and port right, and TLS on both sides or neither?"
TLS = (
    "the certificate must be for this host, and its authority one of the system's, or in the file that ?cacertfile= of"
    " COLDSTREAM_BROKER names"
)
MANAGE = (
    "the plugin rabbitmq_management, the URL of COLDSTREAM_MANAGEMENT, and for its user the tag monitoring:"
    " rabbitmqctl set_user_tags USER monitoring"
)
GIVE_MANAGEMENT = "give --management, or COLDSTREAM_MANAGEMENT"


async def check_broker(options: AgentOptions) -> list[Check]:
    """Check the login at each host, the management API, and each stream that would be archived."""
    logins = [await _check_login(options, host, port) for host, port in options.broker.hosts]
    listing, vhosts, listed = await _check_management(options)
    if all(login.outcome is CheckOutcome.FAILED for login in logins):
        return [*logins, listing]
    return [*logins, listing, *await _check_streams(options, vhosts, listed)]


async def _check_login(options: AgentOptions, host: str, port: int) -> Check:
    what = f"the broker at {place_text(host, port)} takes the login"
    address = replace(options.broker, hosts=((host, port),))
    over = "with TLS" if address.tls else "without TLS"
    finding = f"user {address.username!r}, {over}"
    try:
        async with LiveConnection(address, "/", name=CONNECTION_NAME):
            return ok(CheckedPart.BROKER, what, finding)
    except VhostRefusedError:  # a vhost is opened after the login, which therefore passed
        return ok(CheckedPart.BROKER, what, f"{finding}; it may not use the vhost '/'")
    except LoginRefusedError as err:
        return failed(CheckedPart.BROKER, what, err, LOGIN)
    except ColdstreamError as err:
        return failed(CheckedPart.BROKER, what, err, TLS if "certificate" in str(err).lower() else REACH)


async def _check_management(options: AgentOptions) -> tuple[Check, list[str], list[BrokerStream] | None]:
    """Check the management API; return also the vhosts and the streams that it lists, None if it lists none."""
    what = "the management API lists the streams"
    if options.management is None:
        finding = "none is given: names that a directory's name does not keep are guessed, and retention is not known"
        return unknown(CheckedPart.MANAGEMENT, what, finding, GIVE_MANAGEMENT), [], None
    try:
        client = ManagementClient(options.management)
        listed = await asyncio.to_thread(client.streams)
        vhosts = await asyncio.to_thread(client.vhosts)
    except ColdstreamError as err:
        return failed(CheckedPart.MANAGEMENT, what, err, MANAGE), [], None
    finding = f"{len(listed)} streams in {len({stream.vhost for stream in listed})} of {len(vhosts)} vhosts"
    return ok(CheckedPart.MANAGEMENT, what, finding), vhosts, listed


async def _check_streams(options: AgentOptions, vhosts: list[str], listed: list[BrokerStream] | None) -> list[Check]:
    """Check that each stream can be read: one check for all that can, and one for each that cannot."""
    what = "the streams can be read"
    if listed is None and not options.streams:
        finding = "which streams there are is not known without a management API"
        return [unknown(CheckedPart.BROKER, what, finding, GIVE_MANAGEMENT)]
    names = {(stream.vhost, stream.name) for stream in listed or ()}
    if options.source is SegmentSource.PROTOCOL:
        names |= set(options.streams)
    # Vhosts without a stream are tried too: the API lists no streams of a vhost in which the user has no permissions.
    by_vhost: dict[str, list[str]] = {vhost: [] for vhost in vhosts if options.rules.takes_vhost(vhost)}
    for vhost, name in sorted(names):
        if options.rules.takes(vhost, name):
            by_vhost.setdefault(vhost, []).append(name)
    checks = [check for vhost, of in by_vhost.items() for check in await _check_vhost(options, vhost, of)]
    if not checks:
        return [ok(CheckedPart.BROKER, what, f"all {sum(map(len, by_vhost.values()))} that are to be archived")]
    if len(checks) > MAX_NAMED:
        return [*checks[:MAX_NAMED], failed(CheckedPart.BROKER, what, f"{len(checks) - MAX_NAMED} more are like those")]
    return checks


async def _check_vhost(options: AgentOptions, vhost: str, names: list[str]) -> list[Check]:
    """Return a check for each stream of a vhost that cannot be read.

    Each is subscribed to without a credit, so that the broker delivers nothing.
    """
    user = options.broker.username
    grant = f"rabbitmqctl set_permissions -p '{vhost}' '{user}' '^$' '^$' '.*'"
    # Bounded, as a connection has 256 subscriptions, and whoever finds none free gives up after a while.
    turns = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def check_stream(connection: LiveConnection, name: str) -> Check | None:
        what = f"stream {name!r} in vhost {vhost!r} can be read"
        try:
            async with turns, connection.subscribe(name, FIRST, credits=0):
                return None
        except BrokerRefusedError as err:
            return failed(CheckedPart.BROKER, what, err, grant)
        except NotFoundError as err:
            return unknown(CheckedPart.BROKER, what, err, "it may have been deleted this moment")
        except ColdstreamError as err:
            return unknown(CheckedPart.BROKER, what, err, "does the node that is asked have a replica of it?")

    what = f"vhost {vhost!r} can be read"
    try:
        async with LiveConnection(options.broker, vhost, name=CONNECTION_NAME) as connection:
            checks = await asyncio.gather(*(check_stream(connection, name) for name in names))
    except VhostRefusedError as err:
        return [failed(CheckedPart.BROKER, what, err, grant)]
    except ColdstreamError as err:
        return [failed(CheckedPart.BROKER, what, err, REACH)]
    return [check for check in checks if check is not None]
