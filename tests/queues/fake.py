"""A broker's queue in memory, an archive beside it, and a process that may die at any of its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coldstream.archive.events import event_of
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.format.amqp.message import messages
from coldstream.ingest.announcer import Announcer
from coldstream.manifest.stream import StreamId
from coldstream.queues.delivery import Delivery
from coldstream.queues.state import find_state
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.units import Offset
from tests.support.segments import MemoryArchive

NO_PROPERTIES = b"\x00\x00"


class Death(BaseException):
    """The process ends here."""


class FakeQueue:
    """The queue at its broker: messages that are ready, in order, each with whether it was delivered before."""

    def __init__(self) -> None:
        self.ready: list[Delivery] = []
        self.consumer: FakeSource | None = None

    def publish(self, *bodies: bytes) -> None:
        self.ready += [Delivery(0, False, b"orders", b"key", NO_PROPERTIES, body) for body in bodies]


class FakeSource:
    """Implements `QueueConnection` as `PikaQueue` does: one message is pushed, the rest of a batch fetched."""

    def __init__(self, queue: FakeQueue, step: Callable[[], None], on_pause: Callable[[], None]) -> None:
        assert queue.consumer is None
        queue.consumer = self
        self.queue = queue
        self.held: list[Delivery] = []
        self.taken: set[int] = set()
        self.tag = 0
        self.is_consuming = True
        self._step = step
        self._on_pause = on_pause
        if queue.ready:
            self._deliver()  # a consumer is given its message at once

    def _deliver(self) -> None:
        self.tag += 1
        self.held.append(replace(self.queue.ready.pop(0), tag=self.tag))

    def take(self, wait_s: float) -> Delivery | None:
        self._step()
        self.is_consuming = True
        if len(self.held) == len(self.taken):
            if not self.queue.ready:
                return None
            self._deliver()
        delivery = next(one for one in self.held if one.tag not in self.taken)
        self.taken.add(delivery.tag)
        return delivery

    def settle(self, deliveries: tuple[Delivery, ...]) -> None:
        self._step()
        tags = {one.tag for one in deliveries}
        self.held = [one for one in self.held if one.tag not in tags]
        self.taken -= tags
        if len(deliveries) > 1 and not self.held and self.queue.ready:
            self._deliver()  # the consumer has room again
        self._step()

    def is_empty(self) -> bool:
        self._step()
        return not self.queue.ready and len(self.held) == len(self.taken)

    def pause(self, seconds: float) -> None:
        self._step()
        self._on_pause()

    def close(self) -> None:
        """End the connection: the broker puts back what is not settled."""
        self.queue.ready[:0] = [replace(one, redelivered=True) for one in self.held]
        self.held = []
        self.queue.consumer = None


class Mortal:
    """Passes calls on to an object, each after, and maybe before, a step at which the process may die."""

    def __init__(self, target: Any, step: Callable[[], None]) -> None:
        self._target = target
        self._step = step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self._step()
            answer = found(*arguments, **options)
            self._step()
            return answer

        return call


class World:
    """A queue, and an archive whose function handles events when the archiver waits."""

    def __init__(self) -> None:
        self.queue = FakeQueue()
        self.archive = MemoryArchive()
        self.events: list[str] = []
        self.quarantined: list[str] = []
        self.steps_left: int | None = None
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps_left is not None:
            if not self.steps_left:
                raise Death
            self.steps_left -= 1

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        """Implement `EventBus`."""
        self.step()
        self.events.append(f'{{"source": "{source}", "detail-type": "{detail_type}", "detail": {detail}}}')
        self.step()

    def handle(self) -> None:
        while self.events:
            event = event_of(self.events.pop(0))
            assert isinstance(event, SegmentRolled)
            reason = self.archive.uploader.upload(event).reason
            if reason is not None:
                self.quarantined.append(reason)

    def announcer(self) -> Announcer:
        table, objects = Mortal(self.archive.table, self.step), Mortal(self.archive.objects, self.step)
        return Announcer(table, objects, self, self.archive.keys)

    def source(self) -> FakeSource:
        return FakeSource(self.queue, self.step, self.handle)

    @property
    def stream(self) -> StreamId:
        state = find_state(self.archive.table, "/", "orders")
        assert state is not None
        return state.stream

    def archived(self) -> list[bytes]:
        """Return the bodies that are archived, in order."""
        found: list[bytes] = []
        for step in plan_scan(self.archive.table, self.stream, Offset(0)):
            assert isinstance(step, ScanSlice)
            for chunk in read_slice(self.archive.objects, step):
                found += [message.body for message in messages(chunk, source=step.key)]
        return found
