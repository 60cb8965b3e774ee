"""Whose turn it is to stage a slice that several nodes have: the agents of a cluster send its bytes once, not each.

The agent beside the leader stages at once. The others keep their pins and wait until the manifest covers the slice,
each a TURN_S longer than the one before it in the order in which the broker names the nodes. Agents do not know of each
other, so nothing but time and the bucket tells that the one whose turn it was is away: once the manifest does not cover
the slice by then, and no upload of it has grown since the last look, the next one stages it. That is only about who
sends: two that send at once do no harm, and a pin is released by what the manifest covers, whoever brought it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archive_reads import StagingActivity
from coldstream.agent.proof.broker import BrokerProver
from coldstream.errors import ColdstreamError
from coldstream.ingest.announcer import FIRST_POLL_S, MAX_POLL_S, POLL_FACTOR
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import StreamId
from coldstream.retry import Backoff

log = logging.getLogger(__name__)

TURN_S = 20.0
"""So long each node has until the next one stages. What a hole waits for replicas, 240 s, is longer than all turns."""

MIN_TURN_S = 2.0
"""With a short max-lag: the function needs as long when it starts, and the event would be put twice."""

PLACE_S = 30.0
"""So long the answer of the broker counts. A leader that moves meanwhile makes two agents stage, or another wait."""

ALONE_S = 600.0
"""So long nobody is waited for after turns that nobody took: there may be no agent beside the leader."""


class ReplicaTurns:
    """The turns of one stream. `every_ms` is the span of time borders, None without a max-lag."""

    def __init__(self, archive: ArchiveClient, broker: BrokerProver, every_ms: int | None) -> None:
        self._archive = archive
        self._broker = broker
        # Half a span: then the third agent of a cluster is late by one span, a third of the max-lag.
        self._turn_s = TURN_S if every_ms is None else min(TURN_S, max(MIN_TURN_S, every_ms / 2000))
        self._place = 0
        self._ask_at = self._alone_to = float("-inf")

    async def wait(self, slice_: SegmentSlice, stream: StreamId) -> None:
        """Return when the manifest covers the slice, or when it is this node's turn to stage it.

        Cost: a command to the broker each PLACE_S. Unless the turn is this node's at once: a Query a look, and two
        listings, and one for each upload, when the turn has come. Raises what reading the manifest raises.
        """
        now = asyncio.get_running_loop().time
        place = await self._place_of(stream)
        if place == 0 or now() < self._alone_to:
            return
        backoff = Backoff(FIRST_POLL_S, MAX_POLL_S, POLL_FACTOR)
        turn_at, last = now() + place * self._turn_s, StagingActivity(is_staged=False, parts=0)
        first_offset, next_offset = slice_.first_offset, slice_.next_offset
        while await self._archive.covered_to(stream.incarnation, first_offset, next_offset) < next_offset:
            if now() >= turn_at:
                staging = await self._archive.staging(stream.incarnation, first_offset, next_offset)
                if staging.parts <= last.parts and staging.is_staged <= last.is_staged:
                    if staging == StagingActivity(is_staged=False, parts=0):
                        log.info("%s: no other replica's agent stages, this one does", stream)
                        self._alone_to = now() + ALONE_S
                    return
                # As often as there are parts: an upload that is slow is better waited for than doubled. Once more for a
                # copy that is staged: after that its event may be lost, and another one costs no bytes.
                turn_at, last = now() + self._turn_s, staging
            await asyncio.sleep(min(backoff.next_delay_s(), max(0.0, turn_at - now())))

    async def _place_of(self, stream: StreamId) -> int:
        """Return the place of this node; 0 if the broker does not tell, so that nothing waits without a reason."""
        now = asyncio.get_running_loop().time
        if now() >= self._ask_at:
            self._place = 0
            with suppress(ColdstreamError):
                self._place = await self._broker.place(stream.vhost, stream.name)
            self._ask_at = now() + PLACE_S
        return self._place
