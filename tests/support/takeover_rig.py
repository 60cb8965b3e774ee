"""A takeover between a fake broker and a fake client that counts: each frame moves when a test says so."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from coldstream.errors import ClosedLinkError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.answers import CodeAnswer, ConsumerUpdate, CreditAnswer, MetadataUpdate
from coldstream.gateway.frames.deliver import DELIVER_HEAD_BYTES
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer, Credit, Subscribe, Unsubscribe
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.ports import AnswerFrame, Verdict
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import Takeover
from coldstream.manifest.spec import OffsetSpec
from tests.support.fake_stream_broker import FakeLog, FakeStreamBroker, delivered

OWN_CORRELATION = 0x8000_0000
ANSWERED = {Key.SUBSCRIBE, Key.UNSUBSCRIBE, Key.QUERY_OFFSET, Key.STREAM_STATS, Key.RESOLVE_OFFSET_SPEC}
QUICK = TakeoverOptions(archive_wait_s=0.05, archive_poll_s=0.01, question_s=0.2)


def user_chunks(chunks: Iterable[Chunk], start: int = 0) -> list[bytes]:
    """Return what a client has to get of chunks from an offset on."""
    return [
        delivered(chunk) for chunk in chunks if chunk.header.type is ChunkType.USER and chunk.header.next_offset > start
    ]


class RigClient:
    """The client's end, which fails if it is sent a chunk without a credit, or by a subscription that it lacks."""

    def __init__(self) -> None:
        self.credits: defaultdict[int, int] = defaultdict(int)
        self.chunks: defaultdict[int, list[bytes]] = defaultdict(list)
        self.frames: list[tuple[int, bytes]] = []
        self.codes: dict[int, int] = {}  # of answers, by correlation id
        self.gone: list[str] = []
        self.updates: list[ConsumerUpdate] = []
        self.versions: set[int] = set()
        self.refused_credits: list[CreditAnswer] = []
        self.is_full = False
        self.peer = "127.0.0.1:40000"
        self.close_code: Code | None = None
        self.has_drained = asyncio.Event()

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.receive(piece)

    async def drained(self) -> None:
        await self.has_drained.wait()

    def close(self, code: Code, reason: str) -> None:
        self.close_code = code

    def receive(self, frame: bytes) -> None:
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        body = frame[4:]
        key, version = key_of(body)
        if key == Key.DELIVER:
            number = body[4]
            self.credits[number] -= 1
            assert self.credits[number] >= 0, "a chunk without a credit"
            self.chunks[number].append(frame[DELIVER_HEAD_BYTES[version] :])
            self.versions.add(version)
            return
        self.frames.append((key, frame))
        if key == Key.METADATA_UPDATE:
            self.gone.append(MetadataUpdate.from_body(body).stream)
        elif key == Key.CONSUMER_UPDATE:
            self.updates.append(ConsumerUpdate.from_body(body))
        elif key == ANSWER | Key.CREDIT:
            self.refused_credits.append(CreditAnswer.from_body(body))
        else:
            answer = CodeAnswer.from_body(body)
            assert answer.correlation_id < OWN_CORRELATION, "an answer to the gateway's own request"
            assert answer.correlation_id not in self.codes, "a second answer"
            self.codes[answer.correlation_id] = answer.code


class RigBrokerLink:
    """The broker's end: what is sent waits until it is moved."""

    vhost = "/"

    def __init__(self, rig: TakeoverRig) -> None:
        self._rig = rig
        self.waiting: dict[int, tuple[asyncio.Future[bytes], type[StreamFrame]]] = {}

    def send(self, frame: bytes) -> None:
        self._rig.upstream.append(frame)

    async def request(self, make: Callable[[int], StreamFrame], answer: type[AnswerFrame]) -> AnswerFrame | CodeAnswer:
        correlation_id = OWN_CORRELATION + self._rig.next_number()
        arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting[correlation_id] = arrived, answer
        self.send(make(correlation_id).to_bytes())
        body = (await arrived)[4:]
        plain = CodeAnswer.from_body(body)
        return answer.from_body(body) if plain.code == Code.OK else plain

    def supports(self, key: Key, version: int = 1) -> bool:
        return self._rig.broker.has_stats if key in {Key.STREAM_STATS, Key.CONSUMER_UPDATE} else version == 1


class TakeoverRig:
    """All of it. `upstream` and `downstream` are on their way; `run` moves everything until nothing moves."""

    def __init__(
        self,
        history: MemoryHistory | None = None,
        *,
        has_stats: bool = True,
        version: int = 1,
        options: TakeoverOptions = QUICK,
    ) -> None:
        self.history = history or MemoryHistory()
        self.figures = GatewayFigures()
        self.upstream: deque[bytes] = deque()
        self.downstream: deque[bytes] = deque()
        self.broker = FakeStreamBroker(self.downstream.append, has_stats=has_stats, version=version)
        self.client = RigClient()
        self.link = RigBrokerLink(self)
        self.takeover = Takeover(self.client, self.link, self.history, options, self.figures)
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def across(
        self, chunks: Sequence[Chunk], name: str = "s", *, archived: int = 16, left: int = 4, in_segment: int = 2
    ) -> FakeLog:
        """Declare a stream of which the archive has the first chunks, and the broker what it leaves of its segments."""
        log = self.broker.declare(name)
        for number, chunk in enumerate(chunks):
            if number % in_segment == 0:
                log.roll()
            log.append(chunk)
        log.retain(left)
        if archived:
            self.history.put("/", name, chunks[:archived])
        return log

    def ask(self, frame: StreamFrame) -> None:
        """Send a frame of the client."""
        encoded = frame.to_bytes()
        key, _ = key_of(encoded[4:])
        if not self.takeover.from_client(key, encoded):
            self.upstream.append(encoded)

    def subscribe(
        self, number: int, stream: str, spec: OffsetSpec, credit: int = 10, properties: dict[str, str] | None = None
    ) -> int:
        """Subscribe, and return the correlation id."""
        correlation_id = self.next_number()
        self.client.credits[number] = credit
        self.client.chunks[number] = []
        self.ask(Subscribe(correlation_id, number, stream, spec, credit, properties or {}))
        return correlation_id

    def credit(self, number: int, credit: int) -> None:
        self.client.credits[number] += credit
        self.ask(Credit(number, credit))

    def unsubscribe(self, number: int) -> int:
        correlation_id = self.next_number()
        self.ask(Unsubscribe(correlation_id, number))
        return correlation_id

    def answer_update(self, correlation_id: int, spec: OffsetSpec | None) -> None:
        self.ask(ConsumerUpdateAnswer(correlation_id, Code.OK, spec))

    def move_up(self) -> bool:
        """Let the broker handle one frame."""
        if not self.upstream:
            return False
        self.broker.handle(self.upstream.popleft())
        return True

    def move_down(self) -> bool:
        """Let the proxy handle one frame of the broker."""
        if not self.downstream:
            return False
        frame = self.downstream.popleft()
        key, version = key_of(frame[4:])
        if key == Key.DELIVER:
            head = memoryview(frame)[DELIVER_HEAD_BYTES[version] :][:48]
            match self.takeover.deliver(frame[8], version, head):
                case Verdict.PASS:
                    self.client.receive(frame)
                case Verdict.KEEP:
                    self.takeover.kept(frame[8], version, frame)
            return True
        if key & ANSWER and key & ~ANSWER in ANSWERED:
            correlation_id = CodeAnswer.from_body(frame[4:]).correlation_id
            waiting = self.link.waiting.pop(correlation_id, None)
            if waiting is not None:
                assert key == waiting[1].KEY, "the proxy looks for another answer"
                if not waiting[0].done():
                    waiting[0].set_result(frame)
                return True
            assert correlation_id < OWN_CORRELATION
        if not self.takeover.from_broker(key, frame):
            self.client.receive(frame)
        return True

    async def turn(self, rounds: int = 12) -> None:
        """Let the tasks work, without moving frames."""
        for _ in range(rounds):
            await asyncio.sleep(0)

    async def run(self, *, seconds: float = 0) -> None:
        """Move frames until nothing has moved for a while."""
        end = asyncio.get_running_loop().time() + seconds
        while True:
            await self.turn()
            moved = False
            while self.move_up() or self.move_down():
                moved = True
            if not moved:
                if asyncio.get_running_loop().time() >= end:
                    return
                await asyncio.sleep(0.002)

    def close(self) -> None:
        """End the connection."""
        for arrived, _ in self.link.waiting.values():
            if not arrived.done():
                arrived.set_exception(ClosedLinkError("closed"))
                arrived.exception()
        self.takeover.closed()
