"""What of a stream will never be archived: suspected first, then written down, then announced.

Offsets that neither this disk nor the archive has may still come: another replica's agent may have pinned, staged or
announced them. Agents do not know of each other, but all of them work through one bucket and one manifest. So a hole is
only suspected at first, and archiving goes on after it. It is lost when it has not got smaller for a while, and no part
of it is staged or being staged: after SUSPICION_S, or after REPLICAS_SUSPICION_S if other nodes have the stream, too.
If another agent could not even begin to fill it by then, it is filled later all the same: offsets that are announced
after all are archived, whatever was said of them.

Offsets that retention had deleted before any agent came to the stream are announced as well, so that the archive says
why it begins where it does. They are no loss of the agent's, and raise no alarm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.failure_log import FailureLog
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.stream_file import PendingLoss
from coldstream.errors import ColdstreamError
from coldstream.manifest.entry import Gap
from coldstream.manifest.repair import DAMAGED
from coldstream.units import Offset

log = logging.getLogger(__name__)

SUSPICION_S = 30.0
"""If the stream is on this node alone: no other agent can have what is missing."""

REPLICAS_SUSPICION_S = 240.0
"""If other nodes have the stream: one's agent may have the hole pinned, and much else to stage first.

Consumers that wait for the hole wait as long.
"""

UNSEEN = "deleted by the broker's retention before an agent saw them"
MAX_HOLES = 1000
"""Looked for at a time; the rest is found when the agent starts again."""


@dataclass(frozen=True, slots=True)
class _Notice:
    """Offsets that somebody says are not on this disk; `unseen` as in a loss."""

    first_offset: Offset
    next_offset: Offset
    unseen: bool


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """A hole that may be a loss. `parts` is how many parts of it were being staged at `since`, the last look."""

    hole: Gap
    since: float
    unseen: bool
    parts: int = 0


class Losses:
    """The losses of one stream. From the offset `complete_from` on nothing is missing; `why` says what is before it.

    Both are as the agent found them when it looked last: a hole counts only when it is known to be lost.
    """

    def __init__(
        self,
        identity: StreamIdentity,
        archive: ArchiveClient,
        metrics: AgentMetrics,
        broker: BrokerProver,
        host: str,
        *,
        unseen: str = UNSEEN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._archive = archive
        self._metrics = metrics
        self._broker = broker
        self._reason = f"deleted by the broker's retention before the agent of {host} had them"
        self._unseen = unseen
        self._clock = clock
        self._failures = FailureLog(identity, archive, metrics)
        self._noted: list[_Notice] = []
        self._suspected: list[_Suspicion] = []
        self._try_again_at = self._ask_again_at = clock()
        self._is_on_one_node = False
        self.complete_from = Offset(0)
        self.why: str | None = None

    @property
    def are_suspected(self) -> bool:
        """Whether there are holes that may or may not be lost."""
        return bool(self._noted or self._suspected)

    @property
    def failure(self) -> str | None:
        """Why losses could not be announced, the last time; None if they could."""
        return self._failures.text

    def lose(self, loss: PendingLoss) -> None:
        """Write down a loss, durably; it is announced later. Raises OSError when it cannot be written."""
        # First, as it may raise: a loss that cannot be written down is found again, and must be counted only once.
        self._identity.lose(loss)
        self._incomplete(loss.next_offset, loss.reason)
        if not loss.unseen:
            self._metrics.lost(self._identity.known_as, loss.next_offset - loss.first_offset)

    def note(self, first_offset: Offset, next_offset: Offset, *, unseen: bool = False) -> None:
        """Have offsets suspected by the next `report`."""
        self._noted.append(_Notice(first_offset, next_offset, unseen))

    async def suspect(self, first_offset: Offset, next_offset: Offset, *, unseen: bool = False) -> None:
        """Suspect offsets that are not on this disk, unless they are archived, or their gap has a reason already.

        `unseen` says that this agent comes to the stream only now: nobody saw what is before everything archived. Cost:
        one GetItem, and two Queries if the stream has gaps and losses.
        """
        found = await self._archive.holes(self._identity.incarnation, first_offset, next_offset, MAX_HOLES)
        for hole in found.gaps:
            if hole.reason is not None:
                self._incomplete(hole.next_offset, hole.reason)
            # A hole inside one that is suspected is left to it: the same offsets would otherwise be announced twice.
            elif not any(_holds(one.hole, hole) for one in self._suspected):
                self._suspected.append(_Suspicion(hole, self._clock(), unseen))

    async def damaged(self, first_offset: Offset, next_offset: Offset) -> list[Gap]:
        """Return which of these offsets were given up as damaged. Cost: as of `suspect`."""
        found = await self._archive.holes(self._identity.incarnation, first_offset, next_offset, MAX_HOLES)
        return [gap for gap in found.gaps if gap.reason == DAMAGED]

    async def report_if_possible(self) -> None:
        """Report as `report` does; if that fails, keep the reason and try again later.

        Archiving goes on meanwhile. It may be what makes room for the file in which a loss is written down.
        """
        if self._clock() < self._try_again_at:
            return
        try:
            await self.report()
        except (ColdstreamError, OSError) as err:
            self._failures.report(err, "losses cannot be announced: ")
            self._try_again_at = self._clock() + SUSPICION_S
        else:
            self._failures.clear()

    async def report(self) -> None:
        """Look at the suspicions that are due, and announce what is lost, once the stream has names."""
        while self._noted:
            notice = self._noted[0]
            await self.suspect(notice.first_offset, notice.next_offset, unseen=notice.unseen)
            # Only now: if the manifest cannot be read, the notice is looked at again.
            del self._noted[0]
        now = self._clock()
        if any(now - suspicion.since >= SUSPICION_S for suspicion in self._suspected):
            suspicion_s = await self._suspicion_s()
            # Over a copy: `_settle` takes suspicions out of the list and adds others.
            for suspicion in list(self._suspected):
                if now - suspicion.since >= suspicion_s:
                    await self._settle(suspicion)
        if self._identity.stream is None:
            return
        for loss in self._identity.lost:
            await self._archive.announce_loss(self._identity.stream, loss)
            # After the event: a crash in between announces the loss twice, which does no harm.
            self._identity.remove_loss(loss)

    async def _suspicion_s(self) -> float:
        """Return how long a hole is only suspected. If the broker does not answer, other nodes may have the stream."""
        stream = self._identity.stream
        if stream is not None and self._clock() >= self._ask_again_at:
            # Before the answer: a broker that does not answer must not be asked again by every report.
            self._ask_again_at = self._clock() + SUSPICION_S
            with suppress(ColdstreamError):
                self._is_on_one_node = await self._broker.members(stream.vhost, stream.name) == 1
        return SUSPICION_S if self._is_on_one_node else REPLICAS_SUSPICION_S

    async def _settle(self, suspicion: _Suspicion) -> None:
        """Lose a hole that nobody fills; else suspect what is left of it."""
        incarnation, hole = self._identity.incarnation, suspicion.hole
        staging = await self._archive.staging(incarnation, hole.first_offset, hole.next_offset)
        # The manifest is read after the staging area: a copy is deleted there only when the manifest covers it. Read
        # the other way round, what is archived in between would be in neither, and be called lost.
        found = await self._archive.holes(incarnation, hole.first_offset, hole.next_offset, MAX_HOLES)
        left: list[Gap] = []
        # If the number of parts has changed since the last look, another agent is at work on the hole.
        if found.gaps != (hole,) or staging.is_staged or staging.parts != suspicion.parts:
            left = [gap for gap in found.gaps if gap.reason is None]
        else:
            is_before_all = found.archived_from is None or hole.next_offset <= found.archived_from
            is_unseen = suspicion.unseen and is_before_all
            reason = self._unseen if is_unseen else self._reason
            self.lose(PendingLoss(hole.first_offset, hole.next_offset, reason, unseen=is_unseen))
        # Only now: if the loss could not be written down, the suspicion stays, and is settled again.
        self._suspected.remove(suspicion)
        self._suspected += [_Suspicion(gap, self._clock(), suspicion.unseen, staging.parts) for gap in left]

    def _incomplete(self, next_offset: Offset, why: str) -> None:
        if next_offset > self.complete_from:
            self.complete_from, self.why = next_offset, why


def _holds(hole: Gap, other: Gap) -> bool:
    return hole.first_offset <= other.first_offset and other.next_offset <= hole.next_offset
