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
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.questions import BrokerQuestions
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """The broker serves it from the beginning.

    It continues at `expected`, or wherever it likes if that is None. With `time` it may begin later, too, at the first
    chunk of that time: if retention has taken what was expected, where that is has to be asked.
    """

    expected: Offset | None = None
    time: AtTimestamp | None = None


@dataclass(frozen=True, slots=True)
class ArchiveStart:
    """The archive serves offsets `start` up to, not including, `end`, then the broker.

    `witness` is the last archived user chunk, None if there is none: with the same one the broker proves that it has
    the same stream.
    """

    incarnation: Incarnation
    start: Offset
    end: Offset
    witness: ArchivedHeader | None

    @property
    def attachment(self) -> OffsetSpec:
        """Where to subscribe at the broker."""
        return AtOffset(self.end)


@dataclass(frozen=True, slots=True)
class StreamSurvey:
    """What there is of a stream. `broker_first` is the first offset at the broker, None if nothing is archived.

    `archived` is there only if the archive has what lies before.
    """

    broker_first: Offset | None = None
    archived: StreamBounds | None = None


class Planner:
    """Decides for the streams of one vhost."""

    def __init__(self, view: BrokerQuestions, history: History, vhost: str, options: TakeoverOptions) -> None:
        self._view = view
        self._history = history
        self._vhost = vhost
        self._question_s = options.question_s
        self._poll_s = options.archive_poll_s

    async def survey(self, stream: str, offset: Offset | None = None) -> StreamSurvey:
        """Ask both about a stream; with `offset`, only as far as it takes to tell who has that.

        Raises UnavailableError, CorruptionError, and what `BrokerQuestions` raises for a refusal.
        """
        try:
            bounds = await self._asked(self._history.bounds(self._vhost, stream), stream)
        except UnavailableError:
            # While the archive is away, whoever reads what the broker has must not notice.
            first = None if offset is None else await self._view.first_offset(stream)
            if first is None or offset is None or first > offset:
                raise
            return StreamSurvey(first)
        if bounds is None or bounds.is_direct:
            return StreamSurvey()
        first = await self._view.first_offset(stream)
        if first is None or first <= max(bounds.first_offset, offset or 0):
            # A broker without a chunk has a new stream, or has deleted all but an empty segment: its next chunk tells.
            return StreamSurvey(first or Offset(0))
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
                return await self.attach_at_time(stream, spec, survey.broker_first or Offset(0))
            case _:
                return survey.archived.first_offset if spec == FIRST else None

    async def plan(self, stream: str, spec: OffsetSpec | None) -> BrokerStart | ArchiveStart:
        """Decide. Raises as `survey`."""
        if spec is None or spec in (LAST, NEXT):
            return BrokerStart()
        if self._view.tells_first_offset:
            # Asked first: most subscriptions need no archive, and should not notice one that is away.
            first = await self._view.first_offset(stream)
            if not first or (isinstance(spec, AtOffset) and spec.offset >= first):
                return _broker_start(spec, first or Offset(0))
        survey = await self.survey(stream, spec.offset if isinstance(spec, AtOffset) else Offset(0))
        start = await self.attach(stream, spec, survey)
        first, bounds = survey.broker_first, survey.archived
        if bounds is None or start is None or first is None or start >= first:
            return _broker_start(spec, first)
        last = await self._asked(self._history.attach(self._vhost, stream, LAST), stream)
        witness = None
        if last is not None:
            witness = await self._asked(self._history.header_at(self._vhost, stream, last), stream)
            if witness is None:
                # Removed since. Without a witness nothing would be proven of the broker's log.
                raise UnavailableError(f"stream {stream!r}: the archive does not have its last chunk any more, {last}")
        now = await self._asked(self._history.bounds(self._vhost, stream, fresh=True), stream)
        if now is None or now.incarnation != bounds.incarnation:
            return await self.plan(stream, spec)  # not all of the answers were of one incarnation
        return ArchiveStart(now.incarnation, start, now.tail, witness)

    async def attach_at_time(self, stream: str, spec: AtTimestamp, end: Offset) -> Offset | None:
        """Return where a timestamp attaches in the archive, for a broker that has deleted what lies before `end`.

        Returns None if it is at or after `end`. Raises as `survey`, also if the archive does not reach there.
        """

        async def found() -> Offset | None:
            while True:
                bounds = await self._history.bounds(self._vhost, stream, fresh=True)
                attached = await self._history.attach(self._vhost, stream, spec)
                if attached is not None or bounds is None or bounds.tail >= end:
                    return None if attached is None or attached >= end else attached
                # It may lie in what agents have not archived yet: soon it is known.
                await asyncio.sleep(self._poll_s)

        return await self._asked(found(), stream)

    async def _asked(self, question: Awaitable[T], stream: str) -> T:
        try:
            async with asyncio.timeout(self._question_s):
                return await question
        except TimeoutError as err:
            problem = f"stream {stream!r}: the archive has not answered within {self._question_s:g} s"
            raise UnavailableError(problem) from err


def _broker_start(spec: OffsetSpec, first: Offset | None) -> BrokerStart:
    """Return the start at a broker that has offsets from `first` on, None if that is not known.

    What is expected may be deleted before the subscription begins. It is named, so that this is noticed.
    """
    match spec:
        case AtOffset(offset):
            return BrokerStart(offset)
        case AtTimestamp():
            return BrokerStart(first, spec)
        case _:
            return BrokerStart(first)
