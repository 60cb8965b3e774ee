"""What running agents say of how far the archive is behind their brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from coldstream.agent.monitor.status import AgentStatus
from coldstream.browse.catalogue_row import KnownLag
from coldstream.errors import UnavailableError
from coldstream.manifest.stream import Incarnation

AskAgent = Callable[[], AgentStatus]
"""Asks one agent, once, within seconds. Raises UnavailableError."""


def known_lags(asks: Iterable[AskAgent]) -> Mapping[Incarnation, KnownLag]:
    """Ask agents, and return the lag of each stream by its incarnation. Cost: one GET for each agent.

    Of a stream that several agents archive, the one that is nearest to the end counts: together they are not further
    behind. An agent that does not answer tells nothing.
    """
    found: dict[Incarnation, KnownLag] = {}
    for ask in asks:
        with suppress(UnavailableError):
            for incarnation, lag in _lags_of(ask()).items():
                other = found.get(incarnation)
                if other is None or (lag.offsets or 0) < (other.offsets or 0):
                    found[incarnation] = lag
    return found


def _lags_of(status: AgentStatus) -> Mapping[Incarnation, KnownLag]:
    found = {}
    for stream in status.streams:
        lag_s = stream.lag_s(status.at)
        found[stream.incarnation] = KnownLag(stream.lag_offsets, None if lag_s is None else round(lag_s * 1000))
    return found
