"""The last failure in one stream's work: logged once, counted each time, and shown until the work succeeds."""

from __future__ import annotations

import logging

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.errors import AccessDeniedError, BrokerRefusedError, ColdstreamError

log = logging.getLogger(__name__)


class FailureLog:
    """`text` is the last failure; None after a success."""

    def __init__(self, identity: StreamIdentity, archive: ArchiveClient, metrics: AgentMetrics) -> None:
        self._identity = identity
        self._archive = archive
        self._metrics = metrics
        self.text: str | None = None

    def report(self, err: Exception, doing: str = "") -> None:
        """Log a failure unless it is the same as the last one, and count it. `doing` is put before it."""
        text = f"{doing}{type(err).__name__}: {err}"
        if text != self.text:
            is_expected = isinstance(err, ColdstreamError | OSError)
            log.warning("%s: %s%s", self._identity.known_as, doing, err, exc_info=None if is_expected else err)
        self.text = text
        self._metrics.failed(err, self._identity.known_as)
        # It is AWS that denies, unless the broker does: new clients find credentials that were renewed since.
        if isinstance(err, AccessDeniedError) and not isinstance(err, BrokerRefusedError):
            self._archive.renew()

    def clear(self) -> None:
        """Show no failure any more."""
        self.text = None
