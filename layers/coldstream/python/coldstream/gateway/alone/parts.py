"""`AloneParts`: what the connections of one process share."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.gateway.alone.archived_stream import ArchivedStream
from coldstream.gateway.alone.consumer_turns import ConsumerTurns
from coldstream.gateway.alone.direct_host import DirectHost
from coldstream.gateway.alone.direct_stream import ServedDirectStream
from coldstream.gateway.alone.logins import Logins
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.permissions import PermissionSource
from coldstream.gateway.alone.publish_budget import PublishBudget
from coldstream.gateway.alone.sending_budget import SendingBudget
from coldstream.gateway.alone.served_stream import ServedStream
from coldstream.gateway.alone.super_streams import SuperStreams
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.port import History


@dataclass(frozen=True, slots=True)
class AloneParts:
    """The archive, the streams that are open, and who may do what."""

    history: History
    host: DirectHost
    turns: ConsumerTurns
    logins: Logins
    permissions: PermissionSource
    super_streams: SuperStreams
    budget: PublishBudget
    sending: SendingBudget
    figures: GatewayFigures
    options: AloneOptions

    async def find(self, vhost: str, name: str) -> ServedStream | None:
        """Return a stream, None if there is none. Cost: that of `History.bounds`. Raises UnavailableError."""
        bounds = await self.history.bounds(vhost, name)
        if bounds is None:
            # It may have been created a moment ago.
            bounds = await self.history.bounds(vhost, name, fresh=True)
        if bounds is None:
            return None
        if bounds.is_direct:
            return ServedDirectStream(self.host, vhost, name)
        return ArchivedStream(self.history, vhost, name, self.options.poll_s)
