"""What the subscriptions of one connection share."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.port import History
from coldstream.gateway.ports import BrokerLink, ClientLink
from coldstream.gateway.takeover.ids import SubscriptionIds
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.plan import Planner
from coldstream.gateway.takeover.questions import BrokerQuestions


@dataclass(frozen=True, slots=True)
class TakeoverParts:
    """The two links of a connection whose vhost is open, the archive, and what asks both."""

    client: ClientLink
    broker: BrokerLink
    history: History
    view: BrokerQuestions
    planner: Planner
    options: TakeoverOptions
    figures: GatewayFigures
    ids: SubscriptionIds
