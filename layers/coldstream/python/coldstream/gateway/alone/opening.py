"""Makes what a process answers with, from an archive, and closes it in order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coldstream.errors import ColdstreamError
from coldstream.gateway.alone.consumer_turns import ConsumerTurns
from coldstream.gateway.alone.direct_host import DirectHost
from coldstream.gateway.alone.logins import Logins, PasswordCheck
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.permissions import READ_ALL, PermissionSource
from coldstream.gateway.alone.publish_budget import PublishBudget
from coldstream.gateway.alone.sending_budget import SendingBudget
from coldstream.gateway.alone.super_streams import SuperStreams
from coldstream.gateway.alone.watched_file import looking_again
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.port import History
from coldstream.streams import DirectArchive, StreamClient, StreamOptions

_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def opened_alone(
    archive: DirectArchive,
    history: History,
    passwords: PasswordCheck,
    *,
    permissions: PermissionSource = READ_ALL,
    options: AloneOptions = AloneOptions(),  # noqa: B008  frozen
    streams: StreamOptions = StreamOptions(),  # noqa: B008  frozen
    figures: GatewayFigures | None = None,
) -> AsyncIterator[AloneParts]:
    """Have the parts of `AloneServer` for the duration of the block. The history is the caller's, who closes it.

    At the end, every direct stream is closed: all that was appended is in the archive then.
    """
    host = DirectHost(
        await StreamClient.open(archive, streams),
        poll_s=options.poll_s,
        close_after_s=options.close_after_s,
        takeover_pause_s=options.takeover_pause_s,
    )
    turns = ConsumerTurns(archive.table, lease_s=options.lease_s, every_s=options.turns_every_s)
    logins = Logins(passwords)
    try:
        async with looking_again(passwords.look, permissions.look):
            yield AloneParts(
                history=history,
                host=host,
                turns=turns,
                logins=logins,
                permissions=permissions,
                super_streams=SuperStreams(history, options.super_streams),
                budget=PublishBudget(options.max_pending_total_bytes),
                sending=SendingBudget(options.max_sending_bytes),
                figures=figures or GatewayFigures(),
                options=options,
            )
    finally:
        logins.close()
        await turns.close()
        try:
            await host.close()
        except ColdstreamError as err:  # whoever opens the stream next recovers it
            _LOG.warning("could not close a direct stream: %s", err)
