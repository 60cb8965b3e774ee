"""Answers of the broker that the archive knows better: stored offsets, the first chunk, where a spec attaches.

The broker is always asked first, so that its permissions and its errors count. Its answer is held while the archive is
asked, and passed on as it is if that cannot tell anything better, or not in time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial

from coldstream.errors import ClosedLinkError, ColdstreamError
from coldstream.gateway.frames.answers import CodeAnswer, OffsetAnswer, ResolveOffsetSpecAnswer, StreamStatsAnswer
from coldstream.gateway.frames.frame import LENGTH_BYTES, StreamFrame
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import QueryOffset, ResolveOffsetSpec, StoreOffset, StreamStats
from coldstream.gateway.takeover.parts import TakeoverParts
from coldstream.manifest.spec import LAST, NEXT, AtOffset
from coldstream.read.http import ClosedError
from coldstream.units import Offset

log = logging.getLogger(__name__)

_MAX_QUESTIONS = 256
_MAX_NAME_BYTES = 255
"""Of a stream, and of a reference: brokers take none that is longer."""

_MAX_UNPROVEN = 64
_MAX_READABLE = 10_000

Question = QueryOffset | StreamStats | ResolveOffsetSpec

QUESTIONS: dict[int, type[Question]] = {
    Key.QUERY_OFFSET: QueryOffset,
    Key.STREAM_STATS: StreamStats,
    Key.RESOLVE_OFFSET_SPEC: ResolveOffsetSpec,
}


class SideAnswers:
    """Betters the answers of one connection. More than a few hundred questions at once are left to the broker.

    But for what it does not know of stored offsets: then the client has to ask again.
    """

    def __init__(self, parts: TakeoverParts) -> None:
        self._parts = parts
        self._asked: dict[tuple[int, int], Question] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._readable: set[str] = set()
        self._unproven: dict[str, dict[str, Offset]] = {}

    def question(self, key: int, frame: bytes) -> None:
        """Note a question, which is passed on. Raises BadFrameError."""
        if len(self._asked) + len(self._tasks) < _MAX_QUESTIONS:
            request = QUESTIONS[key].from_body(frame[LENGTH_BYTES:])
            self._asked[key, request.correlation_id] = request

    def store(self, frame: bytes) -> None:
        """Note an offset, which is passed on. Raises BadFrameError.

        Brokers answer nothing to it, and drop what they refuse. So whether this client may read the stream is asked
        before its first offset is noted, unless that is known: else it could tell others where to go on.
        """
        request = StoreOffset.from_body(frame[LENGTH_BYTES:])
        stream, reference, offset = request.stream, request.reference, Offset(request.offset)
        if not stream or not reference or max(len(stream.encode()), len(reference.encode())) > _MAX_NAME_BYTES:
            return  # no broker takes it
        if stream in self._readable:
            self._parts.history.note_offset(self._parts.broker.vhost, stream, reference, offset)
        elif stream in self._unproven:
            offsets = self._unproven[stream]
            if reference in offsets or len(offsets) < _MAX_UNPROVEN:
                offsets[reference] = offset
        elif len(self._unproven) < _MAX_UNPROVEN:
            self._unproven[stream] = {reference: offset}
            task = asyncio.ensure_future(self._prove(stream, reference))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def readable(self, stream: str) -> None:
        """Take note that the broker lets the client read a stream: its offsets need no other proof."""
        if len(self._readable) < _MAX_READABLE:
            self._readable.add(stream)
        for reference, offset in self._unproven.pop(stream, {}).items():
            self._parts.history.note_offset(self._parts.broker.vhost, stream, reference, offset)

    def answer(self, key: int, frame: bytes) -> bool:
        """Take an answer; False if it is to be passed on. Raises BadFrameError."""
        answer = CodeAnswer.from_body(frame[LENGTH_BYTES:])
        question = self._asked.pop((key & ~ANSWER, answer.correlation_id), None)
        if isinstance(question, QueryOffset) and answer.code in {Code.OK, Code.NO_OFFSET}:
            self.readable(question.stream)
        work: Callable[[], Coroutine[None, None, StreamFrame | None]]
        match question:
            case QueryOffset() if answer.code == Code.NO_OFFSET:
                work = partial(self._stored_offset, question)
            case StreamStats() if answer.code == Code.OK:
                work = partial(self._figures, question, StreamStatsAnswer.from_body(frame[LENGTH_BYTES:]))
            case ResolveOffsetSpec() if answer.code == Code.OK and question.spec not in (None, LAST, NEXT):
                work = partial(self._resolved, question)
            case None if key == ANSWER | Key.QUERY_OFFSET and answer.code == Code.NO_OFFSET:
                # One too many: whether it is so cannot be told, and the client would begin elsewhere than where it was.
                unknown = OffsetAnswer(answer.correlation_id, Code.STREAM_NOT_AVAILABLE, Offset(0))
                self._parts.client.send(unknown.to_bytes())
                return True
            case _:
                return False
        task = asyncio.ensure_future(self._better(question, work, frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def close(self) -> None:
        """End all questions."""
        for task in self._tasks:
            task.cancel()

    async def _better(
        self, question: Question, work: Callable[[], Coroutine[None, None, StreamFrame | None]], frame: bytes
    ) -> None:
        better = None
        try:
            async with asyncio.timeout(self._parts.options.question_s):
                better = await work()
        except (ClosedLinkError, ClosedError):
            return
        except (ColdstreamError, TimeoutError) as err:
            log.warning("the archive cannot tell anything better than the broker: %s", err)
            if isinstance(question, QueryOffset) and not await self._has_all(question.stream):
                # "None is stored" would send the client to another place than where it was: it is to ask again.
                better = OffsetAnswer(question.correlation_id, Code.STREAM_NOT_AVAILABLE, Offset(0))
        self._parts.client.send(frame if better is None else better.to_bytes())

    async def _prove(self, stream: str, reference: str) -> None:
        """Note what was stored for a stream, if the client may read it."""
        code: int = Code.ACCESS_REFUSED
        try:
            answer = await self._parts.broker.request(lambda one: QueryOffset(one, reference, stream), OffsetAnswer)
            code = answer.code
        except ColdstreamError as err:
            log.info("offsets of stream %r are not noted: %s", stream, err)
        if code in {Code.OK, Code.NO_OFFSET}:
            self.readable(stream)
        else:
            self._unproven.pop(stream, None)

    async def _has_all(self, stream: str) -> bool:
        """Tell whether the broker still has the first message, and so every offset that was stored."""
        try:
            return await self._parts.view.first_offset(stream) == 0
        except ColdstreamError:
            return False

    async def _stored_offset(self, question: QueryOffset) -> OffsetAnswer | None:
        vhost = self._parts.broker.vhost
        stored = await self._parts.history.stored_offset(vhost, question.stream, question.reference)
        if stored is None:
            return None
        # Brokers forget an offset when retention has deleted what is stored at it. One that they could still know was
        # never stored there, or in another incarnation of the stream.
        survey = await self._parts.planner.survey(question.stream)
        if survey.archived is None or survey.broker_first is None or stored >= survey.broker_first:
            return None
        return OffsetAnswer(question.correlation_id, Code.OK, stored)

    async def _figures(self, question: StreamStats, answer: StreamStatsAnswer) -> StreamStatsAnswer | None:
        survey = await self._parts.planner.survey(question.stream)
        if survey.archived is None:
            return None
        first = survey.archived.first_offset
        figures = tuple((name, first if name == "first_chunk_id" else value) for name, value in answer.figures)
        return replace(answer, figures=figures)

    async def _resolved(self, question: ResolveOffsetSpec) -> ResolveOffsetSpecAnswer | None:
        assert question.spec is not None
        survey = await self._parts.planner.survey(question.stream)
        start = await self._parts.planner.attach(question.stream, question.spec, survey)
        if start is None or survey.broker_first is None or start >= survey.broker_first:
            return None
        archived = await self._parts.history.header_at(self._parts.broker.vhost, question.stream, start)
        if archived is not None:
            start = Offset(archived.header.chunk_id)
        return ResolveOffsetSpecAnswer(question.correlation_id, Code.OK, AtOffset(start))
