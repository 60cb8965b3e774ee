"""What of a stream will never be archived: suspected, then known for sure and written down, then told.

Offsets that neither this disk nor the archive has may still come: another replica's agent may have pinned, staged or
announced them. Agents do not know of each other, but all of them work through one bucket and one manifest. So a hole is
only suspected at first, and archiving goes on after it. It is lost once the archive has not grown into it for a while,
and nothing that is staged, or being staged, is of it: for PATIENCE_S, or for REPLICAS_PATIENCE_S where other nodes have
the stream, too. A hole that another agent could not even begin to fill by then is filled later all the same: offsets
that are announced after all are archived, whatever was said of them.

What was never seen by an agent, because retention had deleted it before one came to the stream, is told as well, so
that it is known why the archive begins where it does. That is no loss of ours, and no reason for an alarm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.stream_file import PendingLoss
from coldstream.errors import AccessDeniedError, ColdstreamError
from coldstream.manifest.entry import Gap
from coldstream.units import Offset

log = logging.getLogger(__name__)

PATIENCE_S = 30.0
"""Where no other agent can have what is missing: the stream is on this node alone."""

REPLICAS_PATIENCE_S = 240.0
"""Where another node's agent may have pinned it, and have much else to stage first. Consumers wait for longer."""

UNSEEN = "deleted by the broker's retention before an agent saw them"
MAX_HOLES = 1000
"""Looked for at once; the rest when the agent starts again."""


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """`parts` is how much of it was being staged at `since`, when it was looked at last; `unseen` as in a loss."""

    hole: Gap
    since: float
    unseen: bool
    parts: int = 0


class Losses:
    """The losses of one stream. `complete_from` is the offset from which on nothing is missing, `why` what is before.

    That is as the agent found it when it looked; it says so of what is to come, too, until it is suspected. `failure`
    is why losses could not be told, the last time; None where they could.
    """

    def __init__(
        self,
        identity: StreamIdentity,
        archive: ArchiveClient,
        metrics: AgentMetrics,
        broker: BrokerProver,
        host: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._archive = archive
        self._metrics = metrics
        self._broker = broker
        self._reason = f"deleted by the broker's retention before the agent of {host} had them"
        self._clock = clock
        self._noted: list[tuple[Offset, Offset, bool]] = []
        self._suspected: list[_Suspicion] = []
        self._try_again_at = self._ask_again_at = clock()
        self._is_alone = False
        self.failure: str | None = None
        self.complete_from = Offset(0)
        self.why: str | None = None

    @property
    def are_suspected(self) -> bool:
        """Tell whether there are holes of which it is not known yet whether they are lost."""
        return bool(self._noted or self._suspected)

    def lose(self, loss: PendingLoss) -> None:
        """Write down a loss, durably: it is told later. Raises OSError when that cannot be done."""
        self._identity.lose(loss)
        self._incomplete(loss.next_offset, loss.reason)
        if not loss.unseen:
            whose = self._identity.stream or self._identity.incarnation
            self._metrics.lost(whose, loss.next_offset - loss.first_offset)

    def note(self, first_offset: Offset, next_offset: Offset, *, unseen: bool = False) -> None:
        """Have offsets suspected as soon as there is time for that."""
        self._noted.append((first_offset, next_offset, unseen))

    async def suspect(self, first_offset: Offset, next_offset: Offset, *, unseen: bool = False) -> None:
        """Take note of offsets that are not on this disk; those that are archived, or explained, are no hole.

        `unseen` says that this agent comes to the stream: what is before all that is archived, nobody has seen.
        Cost: one GetItem, and two Queries where the stream has gaps and losses.
        """
        found = await self._archive.holes(self._identity.incarnation, first_offset, next_offset, MAX_HOLES)
        for hole in found.gaps:
            if hole.reason is not None:
                self._incomplete(hole.next_offset, hole.reason)
            elif not any(_holds(one.hole, hole) for one in self._suspected):
                self._suspected.append(_Suspicion(hole, self._clock(), unseen))

    async def tell_if_possible(self) -> None:
        """Tell as `tell` does, or say why not and try it again later: archiving goes on, and may be what makes room."""
        if self._clock() < self._try_again_at:
            return
        try:
            await self.tell()
        except (ColdstreamError, OSError) as err:
            text = f"losses cannot be told: {type(err).__name__}: {err}"
            if text != self.failure:
                log.warning("%s: %s", self._identity.stream or self._identity.incarnation, text)
            self.failure = text
            self._metrics.failed(err, self._identity.stream or self._identity.incarnation)
            self._try_again_at = self._clock() + PATIENCE_S
            if isinstance(err, AccessDeniedError):
                self._archive.renew()
        else:
            self.failure = None

    async def tell(self) -> None:
        """Look at suspicions whose time has come, and announce what is lost, once the stream has names."""
        while self._noted:
            first_offset, next_offset, unseen = self._noted[0]
            await self.suspect(first_offset, next_offset, unseen=unseen)
            del self._noted[0]
        now = self._clock()
        if any(now - suspicion.since >= PATIENCE_S for suspicion in self._suspected):
            patience_s = await self._patience_s()
            for suspicion in list(self._suspected):
                if now - suspicion.since >= patience_s:
                    await self._settle(suspicion)
        if self._identity.stream is None:
            return
        for loss in self._identity.lost:
            await self._archive.announce_loss(self._identity.stream, loss)
            self._identity.told(loss)

    async def _patience_s(self) -> float:
        """Return how long a hole is only suspected. Where the broker does not tell, other nodes count as having it."""
        stream = self._identity.stream
        if stream is not None and self._clock() >= self._ask_again_at:
            self._ask_again_at = self._clock() + PATIENCE_S
            with suppress(ColdstreamError):
                self._is_alone = await self._broker.members(stream.vhost, stream.name) == 1
        return PATIENCE_S if self._is_alone else REPLICAS_PATIENCE_S

    async def _settle(self, suspicion: _Suspicion) -> None:
        """Lose a hole that nobody fills; else suspect what is left of it."""
        life, hole = self._identity.incarnation, suspicion.hole
        staging = await self._archive.staging(life, hole.first_offset, hole.next_offset)
        # The archive is asked after that: what was staged is let go of when it is archived.
        found = await self._archive.holes(life, hole.first_offset, hole.next_offset, MAX_HOLES)
        left: list[Gap] = []
        if found.gaps != (hole,) or staging.is_staged or staging.parts != suspicion.parts:
            left = [gap for gap in found.gaps if gap.reason is None]
        else:
            is_before_all = found.archived_from is None or hole.next_offset <= found.archived_from
            is_unseen = suspicion.unseen and is_before_all
            reason = UNSEEN if is_unseen else self._reason
            self.lose(PendingLoss(hole.first_offset, hole.next_offset, reason, unseen=is_unseen))
        self._suspected.remove(suspicion)
        self._suspected += [_Suspicion(gap, self._clock(), suspicion.unseen, staging.parts) for gap in left]

    def _incomplete(self, next_offset: Offset, why: str) -> None:
        if next_offset > self.complete_from:
            self.complete_from, self.why = next_offset, why


def _holds(hole: Gap, other: Gap) -> bool:
    return hole.first_offset <= other.first_offset and other.next_offset <= hole.next_offset
