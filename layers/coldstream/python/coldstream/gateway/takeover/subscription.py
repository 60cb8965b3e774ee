"""One subscription, from the client's Subscribe to its end.

    DECIDING ──▶ ASKED ──▶ FOLLOWING ◀──────┐
                   │                         │ the client's answer to ConsumerUpdate
                   └─────▶ INACTIVE ──▶ CHOOSING
                              ▲──────────────┘  (single active consumers)

DECIDING: the client's Subscribe is held until it is known where to begin. ASKED: it was sent to the broker. FOLLOWING:
its chunks pass, or the task serves them from the archive, or settles what comes before those that are kept. A single
active consumer decides when the broker has asked it where it begins: CHOOSING. The broker's subscription is made once,
and never ended while the client's goes on: a single active consumer would lose its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from enum import Enum, auto
from functools import partial

from coldstream.errors import (
    BrokerRefusedError,
    ClosedLinkError,
    ColdstreamError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.gateway.frames.answers import ConsumerUpdate
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer, Subscribe
from coldstream.gateway.ports import Verdict
from coldstream.gateway.takeover.flow import ChunkFlow
from coldstream.gateway.takeover.ids import ReservedId
from coldstream.gateway.takeover.ledger import CreditLedger
from coldstream.gateway.takeover.parts import TakeoverParts
from coldstream.gateway.takeover.plan import ArchiveStart, BrokerStart
from coldstream.gateway.takeover.proof import LogProof
from coldstream.gateway.takeover.serving import ArchiveServer
from coldstream.gateway.takeover.settling import Settler
from coldstream.manifest.spec import LAST, NEXT, OffsetSpec
from coldstream.read.http import ClosedError
from coldstream.units import Offset

log = logging.getLogger(__name__)

_MAX_POSTPONED = 16


class SubscriptionStage(Enum):
    """Where a subscription is."""

    DECIDING = auto()
    ASKED = auto()
    INACTIVE = auto()
    CHOOSING = auto()
    FOLLOWING = auto()
    ENDED = auto()


class FollowedSubscription:
    """Implements `ChunkReceiver` and `IdLender`.

    `on_failure` is called when it cannot go on; whoever made it ends it then.
    """

    def __init__(
        self,
        request: Subscribe,
        frame: bytes,
        parts: TakeoverParts,
        on_failure: Callable[[FollowedSubscription, ColdstreamError], None],
    ) -> None:
        self.request = request
        self.postponed: list[bytes] = []
        """Subscribe frames of the same id, which the broker is to refuse once it has this one."""
        self.stage = SubscriptionStage.DECIDING
        # Brokers before 3.11 know none, and serve it as any other.
        self.is_single_active = request.properties.get("single-active-consumer") == "true" and parts.broker.supports(
            Key.CONSUMER_UPDATE
        )
        self._frame = frame
        self._parts = parts
        self._on_failure = on_failure
        self._start: BrokerStart | ArchiveStart = BrokerStart()
        self._is_active = False  # the broker's last word
        self._question: int | None = None  # the broker's, which the client has not answered; its correlation id
        self._update: ConsumerUpdateAnswer | None = None
        self._task: asyncio.Task[None] | None = None
        self._credited = asyncio.Event()
        ledger = CreditLedger(parts.options.max_upstream_credits, client=request.credit)
        self.flow = ChunkFlow(request, ledger, parts.client, parts.broker, self._wake)
        # Bound here: what every chunk calls should not take another step.
        self.deliver: Callable[[int, memoryview], Verdict] = self.flow.deliver
        self.kept: Callable[[int, bytes], None] = self.flow.kept
        self._server = ArchiveServer(self.flow, parts, self._credited)
        self._settler = Settler(self.flow, parts, self._server)

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.request.stream

    @property
    def is_upstream(self) -> bool:
        """Tell whether the broker has confirmed it."""
        return self.stage not in {SubscriptionStage.DECIDING, SubscriptionStage.ASKED, SubscriptionStage.ENDED}

    def begin(self) -> None:
        """Subscribe at the broker, at once or when it is known from where on."""
        if self.is_single_active:
            self._subscribe(None, 0)
        elif _is_brokers(self.request.spec):
            self._subscribe_from(BrokerStart())
        else:
            self._parts.ids.lenders[self.flow.number] = self
            self._go(self._decide)

    def lend(self, question: ReservedId | None) -> None:
        """Let a question have the chunks that come for the id, which the broker does not know yet."""
        self.deliver = self.flow.deliver if question is None else question.deliver

    def postpone(self, frame: bytes) -> bool:
        """Hold a second Subscribe of this id until the broker has the first; False if it is to be passed on."""
        if self.stage is not SubscriptionStage.DECIDING or len(self.postponed) >= _MAX_POSTPONED:
            return False
        self.postponed.append(frame)
        return True

    def hand_over(self) -> None:
        """Leave a Subscribe that is still held, and is about to be taken back, to the broker, which answers it."""
        if self.stage is SubscriptionStage.DECIDING:
            self._subscribe(None, 0)

    def withdraw(self) -> list[bytes]:
        """End it before the broker has heard of it. Return the Subscribe frames that are held."""
        self._stop()
        self.stage = SubscriptionStage.ENDED
        return [self._frame, *self.postponed]

    def credit(self, credit: int) -> bool:
        """Take the client's credits; False if the frame is to be passed on as it is."""
        ledger, flow = self.flow.ledger, self.flow
        ledger.client += credit
        if self._task is not None or not flow.is_attached:
            self._credited.set()
            return True
        owed = ledger.owed(len(flow.queue))
        if owed == credit:
            ledger.upstream += owed
            return False
        flow.replenish()
        return True

    def confirmed(self) -> None:
        """Go on, as the broker has confirmed the subscription."""
        if self.is_single_active:
            self.stage = SubscriptionStage.INACTIVE
        else:
            self._follow()

    def consumer_update(self, told: ConsumerUpdate) -> bool:
        """Take what the broker says of a single active consumer; True if the client is not to be told."""
        was_active, self._is_active = self._is_active, bool(told.is_active)
        self._question = told.correlation_id if told.is_active else None
        if told.is_active:
            if was_active and self.is_upstream:
                self._stop()
                self._answer_update()
                self._update = ConsumerUpdateAnswer(told.correlation_id, Code.OK, None)
                problem = f"the broker makes subscription {self.flow.number} to {self.stream!r} active twice"
                # It reads from two places, one after the other, and what it sends does not say from which.
                self._on_failure(self, UnavailableError(problem))
                return True
            return False
        self._stop()
        self._answer_update()
        if self.stage is SubscriptionStage.FOLLOWING:
            self._parts.figures.live_subscriptions -= 1
        self.stage = SubscriptionStage.INACTIVE
        self.flow.is_attached = False
        self.flow.begin(None)
        return False

    def choose(self, update: ConsumerUpdateAnswer) -> bool:
        """Take the answer of a client that becomes active; False if it is to be passed on as it is."""
        # One that comes late, to a question that was followed by another word: the broker makes nothing of it, either.
        if self.stage is SubscriptionStage.ENDED or update.correlation_id != self._question:
            return False
        self._question = None
        self.stage = SubscriptionStage.CHOOSING
        self._update = update
        self._go(partial(self._decide_update, update))
        return True

    def end(self) -> None:
        """End everything of it here, at once."""
        self._stop()
        if self.stage is SubscriptionStage.DECIDING:
            # The broker refuses or accepts it as it would have, and answers the Unsubscribe that follows.
            self._subscribe(None, 0)
        self._answer_update()
        if self.stage is SubscriptionStage.FOLLOWING:
            self._parts.figures.live_subscriptions -= 1
        self.stage = SubscriptionStage.ENDED
        self.flow.is_attached = False
        self.flow.begin(None)

    def _wake(self) -> None:
        if self._task is None and self.stage is SubscriptionStage.FOLLOWING:
            self._go(self._settler.settle)
        else:
            self._credited.set()

    async def _decide(self) -> None:
        try:
            start = await self._parts.planner.plan(self.stream, self.request.spec)
        except (BrokerRefusedError, StreamNotFoundError):
            start = BrokerStart()  # the broker tells the client so itself
        await self._parts.ids.take_back(self.flow.number)
        self._subscribe_from(start)

    async def _decide_update(self, update: ConsumerUpdateAnswer) -> None:
        start: BrokerStart | ArchiveStart = BrokerStart()
        spec = self.request.spec if update.spec is None else update.spec
        if not _is_brokers(spec):  # whatever its code says: brokers do not look at that
            with contextlib.suppress(BrokerRefusedError, StreamNotFoundError):
                start = await self._parts.planner.plan(self.stream, spec)
        self._start = start
        if isinstance(start, ArchiveStart):
            update = replace(update, spec=start.attachment)
        self._update = update
        self._answer_update()
        self._follow()

    def _answer_update(self) -> None:
        """Answer the broker, which ends the connection if it gets none: also for one that has ended, or is inactive."""
        update, self._update = self._update, None
        if update is not None:
            self._parts.broker.send(update.to_bytes())

    def _subscribe_from(self, start: BrokerStart | ArchiveStart) -> None:
        self._start = start
        if isinstance(start, ArchiveStart):
            self._subscribe(start.attachment, 0)
            return
        # Not the client's number of credits if it is greater: brokers since 3.11 send nothing before half of the first
        # number is there again, which would never be given to them.
        self._subscribe(self.request.spec, min(self.request.credit, self.flow.ledger.limit))
        # Before the answer: the first chunks come right after it.
        self._attach()

    def _subscribe(self, spec: OffsetSpec | None, credit: int) -> None:
        self.stage = SubscriptionStage.ASKED
        self._parts.ids.lenders.pop(self.flow.number, None)
        self.flow.ledger.upstream = credit
        request = replace(self.request, spec=self.request.spec if spec is None else spec, credit=credit)
        self._parts.broker.send(self._frame if request == self.request else request.to_bytes())
        for frame in self.postponed:
            self._parts.broker.send(frame)
        self.postponed.clear()

    def _follow(self) -> None:
        """Begin to serve the client, whose broker is ready."""
        if self.stage is not SubscriptionStage.FOLLOWING:
            self._parts.figures.live_subscriptions += 1
        self.stage = SubscriptionStage.FOLLOWING
        if isinstance(self._start, ArchiveStart):
            self._attach()
            self._parts.figures.takeovers_total += 1
            self._go(partial(self._serve, self._start))
        elif self.is_single_active:
            self._attach()
            self.flow.rest()
        else:
            self.flow.replenish()  # what the client has given since it subscribed

    def _attach(self) -> None:
        flow, start = self.flow, self._start
        self._settler.time = None
        if isinstance(start, ArchiveStart):
            self._settler.incarnation = start.incarnation
            self._settler.attached = start.end
            if start.witness is not None:
                self._server.committed = Offset(start.witness.header.chunk_id)
            flow.begin(start.start)
            flow.is_attached = True
        else:
            self._settler.time = start.time
            self._settler.attached = Offset(0)
            flow.begin(start.expected)
            flow.attach_live()

    async def _serve(self, start: ArchiveStart) -> None:
        log.info(
            "subscription %d to %r is served from the archive, offsets %d to %d",
            self.flow.number,
            self.stream,
            start.start,
            start.end - 1,
        )
        proof = LogProof(self._parts, self.stream, start)
        await proof.check()
        await self._server.serve(start.incarnation, start.end, self._parts.view.deliver_version)
        if self.flow.expected is not None and self.flow.expected < start.end:
            # Less is archived than there was: removed meanwhile. What comes next shows what is missing.
            log.warning(
                "subscription %d: the archive of %r ends at %d", self.flow.number, self.stream, self.flow.expected
            )
        await proof.wait()
        self._parts.figures.handovers_total += 1
        await self._settler.settle()

    def _go(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self.flow.is_busy = True
        self._task = asyncio.ensure_future(self._run(work))

    async def _run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        task = asyncio.current_task()
        try:
            await work()
        except (ClosedLinkError, ClosedError):
            return  # the connection is over, or the process
        except ColdstreamError as err:
            self._rest(task)
            self._on_failure(self, err)
            return
        except Exception as err:
            log.exception("subscription %d to %r", self.flow.number, self.stream)
            self._rest(task)
            self._on_failure(self, ColdstreamError(f"unexpected: {err!r}"))
            return
        if self._rest(task) and self.stage is SubscriptionStage.FOLLOWING:
            self.flow.rest()

    def _rest(self, task: asyncio.Task[None] | None) -> bool:
        """Note that the task is done; False if another one has taken its place, as the last act of this one."""
        if self._task is not task:
            return False
        self._task = None
        self.flow.is_busy = False
        return True

    def _stop(self) -> None:
        task, self._task = self._task, None
        self.flow.is_busy = False
        if task is not None:
            task.cancel()


def _is_brokers(spec: OffsetSpec | None) -> bool:
    """Tell whether a spec lies at the broker whatever the archive has."""
    return spec is None or spec in (LAST, NEXT)
