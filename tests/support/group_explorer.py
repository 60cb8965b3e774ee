"""Random histories of a group of single active consumers, each on a connection of its own through the gateway.

The broker decides who is active as its source says (rabbit_stream_sac_coordinator.erl, of 3.13 and 4.0): whoever is to
step down has to say so before the next one begins, and nobody waits for an answer of a consumer that was made active.
The members answer late, in order. A member gets a chunk only while it is active by the last word that has reached it,
and has said from where on; then each from there, once, in order.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType
from coldstream.gateway.frames.answers import ConsumerUpdate
from coldstream.gateway.frames.deliver import DELIVER_HEAD_BYTES
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.units import Offset
from tests.support.fake_stream_broker import FakeLog, FakeStreamBroker, delivered
from tests.support.made_chunks import made_chunk
from tests.support.takeover_rig import TakeoverRig

LIMIT = 4
STREAM = "s"
GROUP = {"single-active-consumer": "true", "name": "group"}


@dataclass
class FakeGroup:
    """Who is active. `partition_index` is -1 for a stream that is no partition of a super stream."""

    partition_index: int
    members: list[tuple[FakeStreamBroker, int]] = field(default_factory=list)
    active: tuple[FakeStreamBroker, int] | None = None
    activations: int = 0

    def joined(self, broker: FakeStreamBroker, number: int) -> None:
        self.members.append((broker, number))
        if len(self.members) == 1:
            self._activate()
        elif self.partition_index >= 0 and self.active is not None:
            self._change()

    def left(self, broker: FakeStreamBroker, number: int) -> None:
        self.members.remove((broker, number))
        was_active = self.active == (broker, number)
        if was_active:
            self.active = None
        if was_active and self.members:
            self._activate()
        elif self.active is not None and self.partition_index >= 0:
            self._change()

    def stepped_down(self) -> None:
        if self.active is None:
            self._activate()

    def _wanted(self) -> tuple[FakeStreamBroker, int]:
        return self.members[0 if self.partition_index < 0 else self.partition_index % len(self.members)]

    def _activate(self) -> None:
        self.active = self._wanted()
        self.activations += 1
        broker, number = self.active
        # One that leaves is no longer a reader when it is counted out: then the next one is asked right after.
        if number in broker.readers:
            broker.activate(number, is_active=True)

    def _change(self) -> None:
        assert self.active is not None
        if self.active != self._wanted():
            broker, number = self.active
            self.active = None
            broker.activate(number, is_active=False)


class GroupMember:
    """One consumer, its connection, and what it has to get."""

    def __init__(self, number: int, rig: TakeoverRig, log: FakeLog, rng: random.Random) -> None:
        self.number = number
        self.rig = rig
        self.log = log
        self.random = rng
        self.is_subscribed = False
        self.correlation_id = 0
        self.unanswered: deque[ConsumerUpdate] = deque()
        self.next: int | None = None  # while it is active and has answered
        self.chunks = 0
        self.problem = ""  # what it was sent that it must not be; not raised in the midst of the gateway
        self._received = rig.client.receive
        rig.client.receive = self.receive  # type: ignore[method-assign]

    def subscribe(self) -> None:
        if self.is_subscribed:
            return
        self.is_subscribed = True
        credit = self.random.randint(1, 2 * LIMIT)
        self.correlation_id = self.rig.subscribe(self.number, STREAM, FIRST, credit, GROUP)

    @property
    def is_confirmed(self) -> bool:
        return self.is_subscribed and self.rig.client.codes.get(self.correlation_id) == Code.OK

    def leave(self) -> None:
        if self.is_subscribed:
            while self.unanswered:
                self.answer()
            self.rig.unsubscribe(self.number)
            self.is_subscribed, self.next = False, None

    def credit(self, most: int = 3) -> None:
        if self.is_subscribed:
            self.rig.credit(self.number, self.random.randint(1, most))

    def receive(self, frame: bytes) -> None:
        self._received(frame)
        key, version = key_of(frame[4:])
        if key == Key.CONSUMER_UPDATE and not self.is_confirmed:
            # Of the subscription before: answered all the same, as the broker waits for it.
            self.rig.answer_update(ConsumerUpdate.from_body(frame[4:]).correlation_id, None)
        elif key == Key.CONSUMER_UPDATE:
            self.next = None
            self.unanswered.append(ConsumerUpdate.from_body(frame[4:]))
        elif key == Key.METADATA_UPDATE:
            self.problem = self.problem or "the subscription ended"
        elif key == Key.DELIVER:
            self.problem = self.problem or self.check(frame[DELIVER_HEAD_BYTES[version] :])

    def answer(self) -> None:
        """Answer the oldest question, as a client that handles them one by one."""
        if not self.unanswered:
            return
        update = self.unanswered.popleft()
        spec: OffsetSpec | None = self.random.choice((None, FIRST))
        if update.is_active:
            spec = self.random.choice((FIRST, AtOffset(Offset(self.random.randint(0, self.log.next_offset - 1)))))
            if not self.unanswered:
                self.next = spec.offset if isinstance(spec, AtOffset) else 0
        self.rig.answer_update(update.correlation_id, spec)

    def check(self, chunk: bytes) -> str:
        """Take a chunk; return what is wrong with it, if anything."""
        if not self.is_subscribed:
            return "a chunk after the end"
        if self.next is None:
            return "a chunk for one that is not active"
        header = ChunkHeader.from_bytes(chunk[:CHUNK_HEADER_BYTES], source="member", position=0)
        users = (one for one in self.log.history if one.header.type is ChunkType.USER)
        wanted = next((one for one in users if one.header.next_offset > (self.next or 0)), None)
        if wanted is None or chunk != delivered(wanted):
            return f"after {self.next} it gets {header.chunk_id}"
        self.next = header.next_offset
        self.chunks += 1
        return ""


class GroupExplorer:
    """One history of a group."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.history = MemoryHistory()
        self.group = FakeGroup(self.random.choice((-1, 0, 1, 2)))
        self.log = FakeLog()
        options = TakeoverOptions(archive_wait_s=1000, archive_poll_s=0, question_s=1000, max_upstream_credits=LIMIT)
        self.members: list[GroupMember] = []
        for number in range(3):
            rig = TakeoverRig(self.history, version=self.random.choice((1, 2)), options=options)
            rig.broker.logs[STREAM] = self.log
            rig.broker.coordinator = self.group
            self.members.append(GroupMember(number, rig, self.log, self.random))
        self.archived = 0
        self.archive_of = self.history.put("/", STREAM, [])
        self.publish()
        self.archive(everything=True)

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            kind = ChunkType.TRACKING_DELTA if self.random.random() < 0.25 and self.log.history else ChunkType.USER
            records = 1 if kind is not ChunkType.USER else self.random.randint(1, 5)
            self.log.append(made_chunk(self.log.next_offset, records, kind=kind))
            if self.random.random() < 0.3:
                self.log.roll()
        for member in self.members:
            member.rig.broker.dispatch()

    def archive(self, *, everything: bool = False) -> None:
        history = self.log.history
        target = len(history) if everything else self.random.randint(self.archived, len(history))
        self.archive_of.chunks.extend(history[self.archived : target])
        self.archived = target

    def fault(self) -> None:
        event = self.random.choice((self.archive_of.flows, self.archive_of.answers))
        (event.clear if event.is_set() else event.set)()

    def move(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            rig = self.random.choice(self.members).rig
            self.random.choice((rig.move_up, rig.move_down))()

    def somebody(self) -> GroupMember:
        return self.random.choice(self.members)

    async def play(self, steps: int) -> None:
        actions = [
            (self.publish, 3),
            (self.archive, 2),
            (lambda: self.log.retain(self.random.randint(1, 4)), 2),
            (self.fault, 1),
            (lambda: self.somebody().subscribe(), 3),
            (lambda: self.somebody().leave(), 1),
            (lambda: self.somebody().credit(), 6),
            (lambda: self.somebody().answer(), 4),
            (self.move, 14),
        ]
        for _ in range(steps):
            (action,) = self.random.choices([one for one, _ in actions], [weight for _, weight in actions])
            action()
            await self.members[0].rig.turn(self.random.randint(0, 6))
            self.check()
        await self.finish()

    def check(self) -> None:
        for member in self.members:
            assert not member.problem, member.problem

    async def finish(self) -> None:
        """End all faults: whoever is active then has to get all that there is."""
        self.publish()
        while self.log.history[-1].header.type is not ChunkType.USER:
            self.publish()
        self.archive(everything=True)
        self.archive_of.flows.set()
        self.archive_of.answers.set()
        for _ in range(40):
            for member in self.members:
                member.answer()
                for _ in range(6):
                    await member.rig.turn()
                    while member.rig.move_up() or member.rig.move_down():
                        pass
                member.credit(10)
            self.check()
        active = [one for one in self.members if one.next is not None]
        assert len(active) == (1 if self.group.members else 0), "nobody is active, or more than one"
        for member in active:
            assert member.next == self.log.next_offset, "not all has come"
        assert not self.history.open_readings, "a reading is left open"
        for member in self.members:
            assert not member.rig.broker.updates, "a question of the broker is not answered"
            member.rig.close()
        await self.members[0].rig.turn()
