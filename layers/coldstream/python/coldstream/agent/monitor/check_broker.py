"""Whether the broker takes the login, lists its streams, and lets them be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from coldstream.agent.monitor.check import Check, CheckedPart, CheckOutcome, failed
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
"""Streams that cannot be read, each in a line of its own; of more, the number is told."""

LOGIN = "user and password of COLDSTREAM_BROKER, percent-encoded; `rabbitmqctl list_users` has the users"
REACH = "is the broker up, its plugin rabbitmq_stream enabled, host and port right, and TLS on both sides or neither?"
TLS = "the certificate is to be for this host, and its authority the system's, or ?cacertfile= of COLDSTREAM_BROKER"
MANAGE = (
    "the plugin rabbitmq_management, the URL of COLDSTREAM_MANAGEMENT, and for its user the tag monitoring:"
    " rabbitmqctl set_user_tags USER monitoring"
)


async def check_broker(options: AgentOptions) -> list[Check]:
    """Check the login at each host, the management API, and each stream that would be archived."""
    logins = [await _login(options, host, port) for host, port in options.broker.hosts]
    listing, vhosts, listed = await _management(options)
    if all(login.outcome is CheckOutcome.FAILED for login in logins):
        return [*logins, listing]
    return [*logins, listing, *await _streams(options, vhosts, listed)]


async def _login(options: AgentOptions, host: str, port: int) -> Check:
    what = f"the broker at {place_text(host, port)} takes the login"
    address = replace(options.broker, hosts=((host, port),))
    over = "with TLS" if address.tls else "without TLS"
    found = f"user {address.username!r}, {over}"
    try:
        async with LiveConnection(address, "/", name="coldstream agent --check"):
            return Check(CheckedPart.BROKER, what, CheckOutcome.OK, found)
    except VhostRefusedError:  # which comes after the login
        return Check(CheckedPart.BROKER, what, CheckOutcome.OK, f"{found}; it may not use the vhost '/'")
    except LoginRefusedError as err:
        return failed(CheckedPart.BROKER, what, err, LOGIN)
    except ColdstreamError as err:
        return failed(CheckedPart.BROKER, what, err, TLS if "certificate" in str(err).lower() else REACH)


async def _management(options: AgentOptions) -> tuple[Check, list[str], list[BrokerStream] | None]:
    what = "the management API lists the streams"
    if options.management is None:
        found = "none is given: names that a directory's name does not keep are guessed, and retention is not known"
        return (
            Check(
                CheckedPart.MANAGEMENT, what, CheckOutcome.UNKNOWN, found, "give --management, or COLDSTREAM_MANAGEMENT"
            ),
            [],
            None,
        )
    try:
        client = ManagementClient(options.management)
        listed = await asyncio.to_thread(client.streams)
        vhosts = await asyncio.to_thread(client.vhosts)
    except ColdstreamError as err:
        return failed(CheckedPart.MANAGEMENT, what, err, MANAGE), [], None
    found = f"{len(listed)} streams in {len({stream.vhost for stream in listed})} of {len(vhosts)} vhosts"
    return Check(CheckedPart.MANAGEMENT, what, CheckOutcome.OK, found), vhosts, listed


async def _streams(options: AgentOptions, vhosts: list[str], listed: list[BrokerStream] | None) -> list[Check]:
    what = "the streams can be read"
    if listed is None and not options.streams:
        found = "which streams there are is not known without a management API"
        return [
            Check(CheckedPart.BROKER, what, CheckOutcome.UNKNOWN, found, "give --management, or COLDSTREAM_MANAGEMENT")
        ]
    names = {(stream.vhost, stream.name) for stream in listed or ()}
    if options.source is SegmentSource.PROTOCOL:
        names |= set(options.streams)
    # Also those without a stream: of a vhost in which the user has no permissions, none is listed.
    by_vhost: dict[str, list[str]] = {vhost: [] for vhost in vhosts if options.rules.takes_vhost(vhost)}
    for vhost, name in sorted(names):
        if options.rules.takes(vhost, name):
            by_vhost.setdefault(vhost, []).append(name)
    # What is well is not told of each.
    checks = [check for vhost, of in by_vhost.items() for check in await _streams_of(options, vhost, of)]
    if not checks:
        return [
            Check(
                CheckedPart.BROKER,
                what,
                CheckOutcome.OK,
                f"all {sum(map(len, by_vhost.values()))} that are to be archived",
            )
        ]
    if len(checks) > MAX_NAMED:
        found = f"{len(checks) - MAX_NAMED} more are as those above"
        return [*checks[:MAX_NAMED], Check(CheckedPart.BROKER, what, CheckOutcome.FAILED, found)]
    return checks


async def _streams_of(options: AgentOptions, vhost: str, names: list[str]) -> list[Check]:
    """Subscribe to each stream of a vhost, without a credit, so that nothing is delivered."""
    user = options.broker.username
    grant = f"rabbitmqctl set_permissions -p '{vhost}' '{user}' '^$' '^$' '.*'"
    turns = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def one(connection: LiveConnection, name: str) -> Check | None:
        what = f"stream {name!r} in vhost {vhost!r} can be read"
        try:
            async with turns, connection.subscribe(name, FIRST, credits=0):
                return None
        except BrokerRefusedError as err:
            return failed(CheckedPart.BROKER, what, err, grant)
        except NotFoundError as err:
            return Check(
                CheckedPart.BROKER, what, CheckOutcome.UNKNOWN, str(err), "it may have been deleted this moment"
            )
        except ColdstreamError as err:
            return Check(
                CheckedPart.BROKER, what, CheckOutcome.UNKNOWN, str(err), "has it a replica on the node that is asked?"
            )

    what = f"vhost {vhost!r} can be read"
    try:
        async with LiveConnection(options.broker, vhost, name="coldstream agent --check") as connection:
            found = await asyncio.gather(*(one(connection, name) for name in names))
    except VhostRefusedError as err:
        return [failed(CheckedPart.BROKER, what, err, grant)]
    except ColdstreamError as err:
        return [failed(CheckedPart.BROKER, what, err, REACH)]
    return [check for check in found if check is not None]
