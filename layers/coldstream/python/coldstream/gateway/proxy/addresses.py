"""Under which addresses clients are told to connect: the gateway's, in place of the broker's nodes'."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coldstream.gateway.frames.answers import MetadataAnswer, OpenAnswer
from coldstream.live.address import place_text
from coldstream.live.subscription import Place

_LOG = logging.getLogger("coldstream.gateway.connection")
_HOST, _PORT = "advertised_host", "advertised_port"


@dataclass(frozen=True, slots=True)
class GatewayAddresses:
    """What stands for the broker's nodes: `everywhere` for all of them, or else what `nodes` has for one.

    With neither, it is the address at which the client has reached the gateway. A node that `nodes` does not have is
    left as it is: clients then reach it without the gateway, and the log says so once.
    """

    everywhere: Place | None = None
    nodes: Mapping[Place, Place] = field(default_factory=dict)
    _told: set[Place] = field(default_factory=set, init=False, repr=False, compare=False)

    def seen_from(self, here: Place) -> GatewayAddresses:
        """Return the addresses for a client that has connected to `here`."""
        return self if self.everywhere is not None or self.nodes else GatewayAddresses(here)

    def of(self, node: Place) -> Place:
        """Return the address that stands for a node's."""
        if self.everywhere is not None:
            return self.everywhere
        ours = self.nodes.get(node)
        if ours is None and node not in self._told:
            self._told.add(node)
            _LOG.warning("a node has no address of a gateway", extra={"broker": place_text(*node)})
        return ours or node

    def in_metadata(self, answer: MetadataAnswer) -> MetadataAnswer:
        """Return an answer with our addresses."""
        brokers = tuple([(number, *self.of((host, port))) for number, host, port in answer.brokers])
        return replace(answer, brokers=brokers)

    def in_open(self, answer: OpenAnswer) -> OpenAnswer:
        """Return an answer with our addresses; brokers before 3.9 have none in it."""
        host, port = answer.properties.get(_HOST), answer.properties.get(_PORT, "")
        if host is None or not port.isdigit():
            return answer
        ours = self.of((host, int(port)))
        return replace(answer, properties=answer.properties | {_HOST: ours[0], _PORT: str(ours[1])})
