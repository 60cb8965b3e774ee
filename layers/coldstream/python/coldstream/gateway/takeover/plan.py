"""Where a subscription begins: in the archive, if that has what the broker no longer has, else at the broker.

Offsets do not prove that both have the same stream: one that was deleted and declared again has the same offsets. So
the broker's first chunk is compared with the one that was archived at its offset. Two logs that hold the same chunk are
equal up to it, because osiris replicates as Raft does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from coldstream.errors import UnavailableError
from coldstream.gateway.history.port import ArchivedHeader, History, StreamBounds
from coldstream.gateway.takeover.broker_view import BrokerView
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """The broker serves it from the beginning. It continues at `expected`, or wherever it likes if that is None."""

    expected: Offset | None = None


@dataclass(frozen=True, slots=True)
class ArchiveStart:
    """The archive serves offsets `start` up to, not including, `end`, then the broker.

    `witness` is the last archived user chunk. The broker is asked from it on, and proves with it that it has the same
    stream; None if there is no user chunk.
    """

    incarnation: Incarnation
    start: Offset
    end: Offset
    witness: ArchivedHeader | None

    @property
    def attachment(self) -> OffsetSpec:
        """Where to subscribe at the broker."""
        return AtOffset(self.end if self.witness is None else Offset(self.witness.header.chunk_id))


@dataclass(frozen=True, slots=True)
class StreamSurvey:
    """What there is of a stream. `broker_first` is the first offset at the broker, None if that is not known.

    `archived` is there only if the archive has what lies before.
    """

    broker_first: Offset | None = None
    archived: StreamBounds | None = None


class Planner:
    """Decides for the streams of one vhost."""

    def __init__(self, view: BrokerView, history: History, vhost: str, question_s: float) -> None:
        self._view = view
        self._history = history
        self._vhost = vhost
        self._question_s = question_s

    async def survey(self, stream: str) -> StreamSurvey:
        """Ask both about a stream.

        Raises UnavailableError, CorruptionError, and what `BrokerView` raises for a refusal.
        """
        bounds = await self._asked(self._history.bounds(self._vhost, stream), stream)
        if bounds is None or bounds.is_direct:
            return StreamSurvey()
        first = await self._view.first_offset(stream)
        if first is None or first <= bounds.first_offset:
            return StreamSurvey(first)
        header = await self._view.header(stream, FIRST)
        if header is None:
            # All is deleted but a segment without chunks: the offsets say so, and no chunk is there to tell more.
            return StreamSurvey(first, bounds)
        first = Offset(header.chunk_id)
        archived = await self._asked(self._history.header_at(self._vhost, stream, first), stream)
        if archived is not None and not archived.is_of(header):
            log.warning(
                "stream %r: the broker's chunk at offset %d is not the one that was archived, so it is another"
                " incarnation than %s: the archive is left out",
                stream,
                first,
                bounds.incarnation,
            )
            return StreamSurvey(first)
        return StreamSurvey(first, bounds)

    async def attach(self, stream: str, spec: OffsetSpec, survey: StreamSurvey) -> Offset | None:
        """Return where a spec attaches in what the archive has; None if the broker knows that better."""
        if survey.archived is None:
            return None
        match spec:
            case AtOffset(offset):
                return max(offset, survey.archived.first_offset)
            case AtTimestamp():
                return await self._asked(self._history.attach(self._vhost, stream, spec), stream)
            case _:
                return survey.archived.first_offset if spec == FIRST else None

    async def plan(self, stream: str, spec: OffsetSpec | None) -> BrokerStart | ArchiveStart:
        """Decide. Raises as `survey`."""
        if spec is None or spec in (LAST, NEXT):
            return BrokerStart()
        survey = await self.survey(stream)
        start = await self.attach(stream, spec, survey)
        first, bounds = survey.broker_first, survey.archived
        if bounds is None or start is None or first is None or start >= first:
            # What is expected may be deleted before the subscription begins. It is named, so that this is noticed.
            if isinstance(spec, AtOffset):
                return BrokerStart(spec.offset)
            return BrokerStart(first if spec == FIRST else start)
        last = await self._asked(self._history.attach(self._vhost, stream, LAST), stream)
        witness = None
        if last is not None:
            witness = await self._asked(self._history.header_at(self._vhost, stream, last), stream)
        # The archive may have grown since its bounds were asked.
        end = bounds.tail if witness is None else max(bounds.tail, witness.header.next_offset)
        return ArchiveStart(bounds.incarnation, start, end, witness)

    async def _asked(self, question: Awaitable[T], stream: str) -> T:
        try:
            async with asyncio.timeout(self._question_s):
                return await question
        except TimeoutError as err:
            problem = f"stream {stream!r}: the archive has not answered within {self._question_s:g} s"
            raise UnavailableError(problem) from err
