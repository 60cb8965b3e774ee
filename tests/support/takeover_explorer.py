"""Random histories of a stream, its retention, its archive and its client, from a seed, and what has to hold in each.

A client gets each user chunk at or after its start once, in order, byte for byte, of one incarnation, and never more
than it gave credits for; what is kept for it is bounded by the credits. When all faults are over, it has got all.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from coldstream.format.chunk import Chunk, ChunkType
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.subscription import FollowedSubscription
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset, TimestampMs
from tests.support.fake_stream_broker import FakeLog, delivered
from tests.support.made_chunks import made_chunk
from tests.support.takeover_rig import TakeoverRig, user_chunks

LIMIT = 4
NUMBER = 3
STREAM = "s"


@dataclass
class ClientSubscription:
    """What the client wants."""

    spec: OffsetSpec
    correlation_id: int
    has_filter: bool
    is_archived: bool
    """Whether anything was archived when it began. If not, the broker alone decided where."""
    end: int
    """The end of the log then: at or after it, the broker alone decides where."""


class TakeoverExplorer:
    """One history."""

    intervene_weight = 0.2

    def __init__(self, seed: int, *, redeclares: bool = False) -> None:
        self.random = random.Random(seed)
        self.redeclares = redeclares
        self.rig = TakeoverRig(
            has_stats=self.random.random() < 0.5,
            version=self.random.choice((1, 2)),
            options=TakeoverOptions(archive_wait_s=1000, archive_poll_s=0, question_s=1000, max_upstream_credits=LIMIT),
        )
        self.incarnations: list[FakeLog] = []
        self.wanted: ClientSubscription | None = None
        self.declare()

    def declare(self) -> None:
        log = self.rig.broker.declare(STREAM)
        self.incarnations.append(log)
        self.archived = 0
        self.is_archived = False

    @property
    def log(self) -> FakeLog:
        return self.incarnations[-1]

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            kind = ChunkType.TRACKING_DELTA if self.random.random() < 0.25 else ChunkType.USER
            records = 1 if kind is not ChunkType.USER else self.random.randint(1, 5)
            at = self.log.next_offset
            shift = 10_000_000 * len(self.incarnations)
            chunk = made_chunk(at, records, timestamp=shift + 1000 * at, kind=kind)
            if self.random.random() < 0.3:
                self.log.hidden.add(at)
            self.log.append(chunk)
            if self.random.random() < 0.3:
                self.log.roll()
        self.rig.broker.dispatch()

    def archive(self, *, everything: bool = False) -> None:
        history = self.log.history
        target = len(history) if everything else self.random.randint(self.archived, len(history))
        if target == 0:
            return
        if not self.is_archived:
            flows = self.rig.history.archives.get(("/", STREAM))
            made = self.rig.history.put("/", STREAM, [])
            if flows is not None:
                made.flows, made.answers = flows.flows, flows.answers
            self.is_archived = True
        self.rig.history.archives["/", STREAM].chunks.extend(history[self.archived : target])
        self.archived = target

    def fault(self) -> None:
        archive = self.rig.history.archives.get(("/", STREAM))
        if archive is None:
            return
        event = self.random.choice((archive.flows, archive.answers))
        if event.is_set():
            event.clear()
        else:
            event.set()

    def subscribe(self) -> None:
        if self.wanted is not None:
            return
        end = self.log.next_offset
        shift = 10_000_000 * len(self.incarnations)
        at = self.random.randint(0, end + 3)
        spec = self.random.choice(
            (FIRST, FIRST, AtOffset(Offset(at)), AtTimestamp(TimestampMs(shift + 1000 * at)), LAST, NEXT)
        )
        has_filter = self.random.random() < 0.2
        properties = {"filter.0": "a", "match-unfiltered": "true"} if has_filter else {}
        number = self.rig.subscribe(NUMBER, STREAM, spec, self.random.randint(1, 2 * LIMIT), properties)
        self.wanted = ClientSubscription(spec, number, has_filter, self.is_archived, end)

    def unsubscribe(self) -> None:
        if self.wanted is not None:
            self.check()
            self.rig.unsubscribe(NUMBER)
            self.wanted = None

    def credit(self) -> None:
        if self.wanted is not None:
            self.rig.credit(NUMBER, self.random.randint(1, 3))

    def toggle_full(self) -> None:
        client = self.rig.client
        client.is_full = not client.is_full
        if client.is_full:
            client.has_drained.clear()
        else:
            client.has_drained.set()

    def intervene(self) -> None:
        if self.redeclares and self.log.history:
            self.rig.broker.delete(STREAM)
            self.declare()
            if self.wanted is not None:
                self.wanted.is_archived = False

    def move(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self.random.choice((self.rig.move_up, self.rig.move_down))()

    def notice_ends(self) -> None:
        client, wanted = self.rig.client, self.wanted
        code = None if wanted is None else client.codes.get(wanted.correlation_id)
        # What was said before the answer is of an earlier subscription.
        if (code == Code.OK and client.gone) or code not in {None, Code.OK}:
            assert self.redeclares, "the subscription ended"
            self.check()
            self.wanted = None
        client.gone.clear()

    def check(self) -> None:
        """Check what has come so far."""
        wanted, received = self.wanted, self.rig.client.chunks[NUMBER]
        if wanted is None or not received:
            return
        for log in self.incarnations:
            if received[0] in {delivered(chunk) for chunk in log.history}:
                break
        else:
            raise AssertionError("a chunk that never was")
        expected = [chunk for chunk in log.history if chunk.header.type is ChunkType.USER]
        start = self.start(wanted, log)
        if start is None:
            begin = next(at for at, chunk in enumerate(expected) if delivered(chunk) == received[0])
            expected = expected[begin:]
        else:
            expected = [chunk for chunk in expected if chunk.header.next_offset > start]
        self.compare(received, expected, log, wanted)

    def start(self, wanted: ClientSubscription, log: FakeLog) -> int | None:
        """Return the offset where the client begins; None if that depends on when the broker was asked."""
        if not wanted.is_archived:
            return None
        match wanted.spec:
            case AtOffset(offset):
                return offset if offset < wanted.end and not self.redeclares else None
            case AtTimestamp(timestamp):
                late = (chunk.header.chunk_id for chunk in log.history if chunk.header.timestamp >= timestamp)
                found = next(late, None)
                return found if found is not None and found < wanted.end and not self.redeclares else None
            case _:
                return 0 if wanted.spec == FIRST else None

    def compare(self, received: list[bytes], expected: list[Chunk], log: FakeLog, wanted: ClientSubscription) -> None:
        if not wanted.has_filter and wanted.is_archived:
            assert received == [delivered(chunk) for chunk in expected[: len(received)]]
            return
        rest = iter(expected)
        for one in received:
            for chunk in rest:
                if delivered(chunk) == one:
                    break
                # Of a stream that is not archived, retention may take what it likes.
                is_hidden = wanted.has_filter and chunk.header.chunk_id in log.hidden
                assert is_hidden or not wanted.is_archived, "a chunk that no filter leaves out is missing"
            else:
                raise AssertionError("a chunk twice, or out of order")

    def check_bounds(self) -> None:
        receiver = self.rig.takeover._receivers.get(NUMBER)
        if isinstance(receiver, FollowedSubscription):
            flow = receiver.flow
            assert len(flow.queue) + max(0, flow.ledger.upstream) <= LIMIT
            assert flow.ledger.client == self.rig.client.credits[NUMBER]

    async def play(self, steps: int) -> None:
        actions = [
            (self.publish, 4),
            (self.archive, 3),
            (lambda: self.log.retain(self.random.randint(1, 4)), 2),
            (self.fault, 1),
            (self.subscribe, 2),
            (self.unsubscribe, 0.3),
            (self.credit, 4),
            (self.toggle_full, 0.5),
            (self.intervene, self.intervene_weight),
            (self.move, 12),
        ]
        for _ in range(steps):
            (action,) = self.random.choices([one for one, _ in actions], [weight for _, weight in actions])
            action()
            await self.rig.turn(self.random.randint(0, 6))
            self.notice_ends()
            self.check_bounds()
            if self.random.random() < 0.1:
                self.check()
        await self.finish()

    async def finish(self) -> None:
        """End all faults, and check that the client gets all that there is."""
        self.end_faults()
        for _ in range(40):
            for _ in range(12):
                await self.rig.turn()
                while self.rig.move_up() or self.rig.move_down():
                    pass
            self.notice_ends()
            self.check_bounds()
            if self.wanted is not None:
                self.rig.credit(NUMBER, 10)
        self.check()
        self.check_end()
        assert len(self.rig.history.open_readings) == 0, "a reading is left open"
        self.rig.close()
        await self.rig.turn()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left"

    def end_faults(self) -> None:
        if self.rig.client.is_full:
            self.toggle_full()
        # A broker that has deleted all but an empty segment says nothing until the next chunk.
        self.publish()
        while self.log.history[-1].header.type is not ChunkType.USER:
            self.publish()
        self.archive(everything=True)
        if (archive := self.rig.history.archives.get(("/", STREAM))) is not None:
            archive.flows.set()
            archive.answers.set()
        self.notice_ends()

    def check_end(self) -> None:
        if self.wanted is None or self.wanted.has_filter:
            return
        users = user_chunks(self.log.history)
        received = self.rig.client.chunks[NUMBER]
        if received:
            assert received[-1] == users[-1], "not all has come"
        if users and self.wanted.spec == FIRST and self.wanted.is_archived:
            assert received, "nothing has come"
