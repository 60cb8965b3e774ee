"""A broker of streams as its source says it behaves, for tests of what lies between it and a client: no sockets.

Segments, retention, readers and credits are as in osiris_log.erl and rabbit_stream_reader.erl: a reader keeps the
segment that it is in, even deleted, and goes on at the first one that is left. A request is handled to its end, chunks
included, before the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.gateway.frames.answers import (
    ConsumerUpdate,
    CreditAnswer,
    MetadataUpdate,
    OffsetAnswer,
    ResolveOffsetSpecAnswer,
    StreamStatsAnswer,
    plain_answer,
)
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import (
    ConsumerUpdateAnswer,
    Credit,
    QueryOffset,
    ResolveOffsetSpec,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset


def delivered(chunk: Chunk, *, trailer: bool = False) -> bytes:
    """Return a chunk as brokers deliver it."""
    return chunk.header.to_bytes() + bytes(chunk.data) + (bytes(chunk.trailer) if trailer else b"")


@dataclass
class FakeSegment:
    """Chunks of a log. `filtered` are the ids of those whose bloom filter matches no filter."""

    chunks: list[Chunk] = field(default_factory=list)


class FakeLog:
    """The log of one stream. `history` has every chunk that was ever committed."""

    def __init__(self) -> None:
        self.segments = [FakeSegment()]
        self.history: list[Chunk] = []
        self.deleted = 0  # segments from the front that retention has deleted
        self.hidden: set[int] = set()  # ids of chunks that filters leave out
        self.offsets: dict[str, int] = {}

    @property
    def next_offset(self) -> Offset:
        return self.history[-1].header.next_offset if self.history else Offset(0)

    @property
    def first(self) -> ChunkHeader | None:
        for segment in self.segments[self.deleted :]:
            for chunk in segment.chunks:
                return chunk.header
        return None

    def append(self, chunk: Chunk) -> None:
        self.history.append(chunk)
        self.segments[-1].chunks.append(chunk)

    def roll(self) -> None:
        if self.segments[-1].chunks:
            self.segments.append(FakeSegment())

    def retain(self, segments: int) -> None:
        """Delete all but the last segments."""
        self.deleted = max(self.deleted, len(self.segments) - max(1, segments))
        first = self.first
        if first is not None:
            self.offsets = {name: one for name, one in self.offsets.items() if one >= first.chunk_id}

    def attach(self, spec: OffsetSpec | None) -> tuple[int, int]:
        """Return segment and chunk number where a reader begins."""
        places = [
            (number, at, chunk.header)
            for number, segment in enumerate(self.segments)
            if number >= self.deleted
            for at, chunk in enumerate(segment.chunks)
        ]
        end = (len(self.segments) - 1, len(self.segments[-1].chunks))
        match spec:
            case AtOffset(offset):
                if offset > self.next_offset:
                    return end
                return next(((n, at) for n, at, header in places if header.next_offset > offset), end)
            case AtTimestamp(timestamp):
                return next(((n, at) for n, at, header in places if header.timestamp >= timestamp), end)
            case _ if spec == FIRST:
                return places[0][:2] if places else end
            case _ if spec == LAST:
                users = [(n, at) for n, at, header in places if header.type is ChunkType.USER]
                return users[-1] if users else end
            case _:
                return end


@dataclass
class FakeReader:
    """One subscription of a connection."""

    request: Subscribe
    log: FakeLog
    credit: int
    send_limit: int
    is_active: bool = True
    place: tuple[int, int] | None = None
    has_to_step_down: bool = False
    """Somebody else waits for its answer to become active."""

    def next(self) -> Chunk | None:
        """Return the next chunk that is sent, and move past it."""
        every = self.request.properties.get("chunk_selector") == "all"
        has_filter = any(name.startswith("filter.") for name in self.request.properties)
        while self.place is not None:
            number, at = self.place
            segment = self.log.segments[number]
            if at < len(segment.chunks):
                self.place = (number, at + 1)
                chunk = segment.chunks[at]
                if not every and chunk.header.type is not ChunkType.USER:
                    continue
                if has_filter and chunk.header.chunk_id in self.log.hidden:
                    continue
                return chunk
            after = max(number + 1, self.log.deleted)
            if after >= len(self.log.segments):
                return None
            self.place = (after, 0)
        return None


class FakeCoordinator(Protocol):
    """Decides who is active among the single active consumers of several connections."""

    def joined(self, broker: FakeStreamBroker, number: int) -> None:
        """Take a new consumer."""
        ...

    def left(self, broker: FakeStreamBroker, number: int) -> None:
        """Go on without a consumer."""
        ...

    def stepped_down(self) -> None:
        """Make another consumer active, as the last one has answered that it is not."""
        ...


class FakeStreamBroker:
    """One connection of a broker. `send` is called with each frame that it sends."""

    def __init__(self, send: Callable[[bytes], None], *, has_stats: bool, version: int = 1) -> None:
        self.logs: dict[str, FakeLog] = {}
        self.refused: dict[str, Code] = {}
        self.readers: dict[int, FakeReader] = {}
        self.requests: list[object] = []  # all that it was asked
        self.has_stats = has_stats
        self.version = version
        self.updates: dict[int, FakeReader] = {}
        self.coordinator: FakeCoordinator | None = None
        self._send = send
        self._correlation = 0

    def declare(self, stream: str) -> FakeLog:
        log = self.logs[stream] = FakeLog()
        return log

    def delete(self, stream: str) -> None:
        """Delete a stream, and tell the connection if it has a subscription to it."""
        del self.logs[stream]
        gone = [number for number, reader in self.readers.items() if reader.request.stream == stream]
        for number in gone:
            del self.readers[number]
        if gone:
            self._send(MetadataUpdate(Code.STREAM_NOT_AVAILABLE, stream).to_bytes())

    def dispatch(self) -> None:
        """Send what credits allow, as after something was committed."""
        for reader in self.readers.values():
            self._dispatch(reader)

    def activate(self, number: int, *, is_active: bool) -> int:
        """Ask a single active consumer from where on it reads, or tell it that it is not active."""
        reader = self.readers[number]
        reader.is_active = is_active
        reader.has_to_step_down = not is_active
        if not is_active:
            reader.place = None
        self._correlation += 1
        self.updates[self._correlation] = reader
        self._send(ConsumerUpdate(self._correlation, number, int(is_active)).to_bytes())
        return self._correlation

    def handle(self, frame: bytes) -> None:
        """Handle one frame of the client's side."""
        body = frame[4:]
        key, _ = key_of(body)
        match key:
            case Key.SUBSCRIBE:
                self._subscribe(Subscribe.from_body(body))
            case Key.CREDIT:
                self._credit(Credit.from_body(body))
            case Key.UNSUBSCRIBE:
                self._unsubscribe(Unsubscribe.from_body(body))
            case Key.STREAM_STATS:
                self._stats(StreamStats.from_body(body))
            case Key.QUERY_OFFSET:
                self._query(QueryOffset.from_body(body))
            case Key.STORE_OFFSET:
                store = StoreOffset.from_body(body)
                if store.stream not in self.refused:
                    self.logs[store.stream].offsets[store.reference] = store.offset
            case Key.RESOLVE_OFFSET_SPEC:
                self._resolve(ResolveOffsetSpec.from_body(body))
            case _ if key == ANSWER | Key.CONSUMER_UPDATE:
                self._updated(ConsumerUpdateAnswer.from_body(body))
            case _:
                raise AssertionError(f"the broker closes the connection: key {key}")

    def _subscribe(self, request: Subscribe) -> None:
        self.requests.append(request)
        log = self.logs.get(request.stream)
        code = self.refused.get(request.stream, Code.OK)
        if code is Code.OK and log is None:
            code = Code.STREAM_DOES_NOT_EXIST
        if code is Code.OK and request.subscription_id in self.readers:
            code = Code.SUBSCRIPTION_EXISTS
        self._send(plain_answer(Key.SUBSCRIBE, request.correlation_id, code))
        if code is not Code.OK or log is None:
            return
        reader = FakeReader(request, log, request.credit, request.credit // 2 if self.has_stats else 0)
        self.readers[request.subscription_id] = reader
        if self.has_stats and request.properties.get("single-active-consumer") == "true":
            reader.is_active = False
            if self.coordinator is not None:
                self.coordinator.joined(self, request.subscription_id)
            return
        reader.place = log.attach(request.spec)
        self._dispatch(reader)

    def _credit(self, request: Credit) -> None:
        self.requests.append(request)
        reader = self.readers.get(request.subscription_id)
        if reader is None:
            self._send(CreditAnswer(Code.SUBSCRIPTION_DOES_NOT_EXIST, request.subscription_id).to_bytes())
            return
        reader.credit += request.credit
        if reader.place is None:
            self._send(CreditAnswer(Code.PRECONDITION_FAILED, request.subscription_id).to_bytes())
            return
        self._dispatch(reader)

    def _unsubscribe(self, request: Unsubscribe) -> None:
        self.requests.append(request)
        found = self.readers.pop(request.subscription_id, None)
        is_single_active = found is not None and found.request.properties.get("single-active-consumer") == "true"
        if found is not None and is_single_active and self.coordinator is not None:
            self._step_down(found)
            self.coordinator.left(self, request.subscription_id)
        code = Code.SUBSCRIPTION_DOES_NOT_EXIST if found is None else Code.OK
        self._send(plain_answer(Key.UNSUBSCRIBE, request.correlation_id, code))

    def _stats(self, request: StreamStats) -> None:
        self.requests.append(request)
        assert self.has_stats, "the broker closes the connection"
        log = self.logs.get(request.stream)
        code = self.refused.get(request.stream, Code.OK if log else Code.STREAM_DOES_NOT_EXIST)
        if code is not Code.OK or log is None:
            self._send(plain_answer(Key.STREAM_STATS, request.correlation_id, code))
            return
        first = -1 if log.first is None else log.first.chunk_id
        figures = (("first_chunk_id", first), ("committed_chunk_id", log.next_offset - 1))
        self._send(StreamStatsAnswer(request.correlation_id, Code.OK, figures).to_bytes())

    def _query(self, request: QueryOffset) -> None:
        self.requests.append(request)
        found = self.logs[request.stream].offsets.get(request.reference)
        code = self.refused.get(request.stream, Code.NO_OFFSET if found is None else Code.OK)
        self._send(OffsetAnswer(request.correlation_id, code, found or 0).to_bytes())

    def _resolve(self, request: ResolveOffsetSpec) -> None:
        log = self.logs[request.stream]
        number, at = log.attach(request.spec)
        chunks = log.segments[number].chunks
        offset = Offset(chunks[at].header.chunk_id) if at < len(chunks) else log.next_offset
        self._send(ResolveOffsetSpecAnswer(request.correlation_id, Code.OK, AtOffset(offset)).to_bytes())

    def _updated(self, answer: ConsumerUpdateAnswer) -> None:
        self.requests.append(answer)
        reader = self.updates.pop(answer.correlation_id)
        if reader.is_active and any(one is reader for one in self.readers.values()):
            reader.place = reader.log.attach(reader.request.spec if answer.spec is None else answer.spec or NEXT)
            self._dispatch(reader)
        else:
            self._step_down(reader)

    def _step_down(self, reader: FakeReader) -> None:
        if reader.has_to_step_down and self.coordinator is not None:
            reader.has_to_step_down = False
            self.coordinator.stepped_down()

    def _dispatch(self, reader: FakeReader) -> None:
        if reader.credit <= reader.send_limit:
            return
        every = reader.request.properties.get("chunk_selector") == "all"
        while reader.credit > 0 and (chunk := reader.next()) is not None:
            reader.credit -= 1
            content = delivered(chunk, trailer=every)
            number = reader.request.subscription_id
            self._send(deliver_head(self.version, number, chunk.header.chunk_id, len(content)) + content)
