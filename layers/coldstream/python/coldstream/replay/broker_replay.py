"""What all replays into a broker have in common: reading, pace, retries, progress, summary and stop."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from coldstream.flow.pace import Pace
from coldstream.format.amqp.message import Message
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.read.scan import ScanSlice
from coldstream.replay.left_out import LeftOutMessages, LeftOutReason
from coldstream.replay.read_ahead import read_ahead
from coldstream.replay.request import ReplayRequest
from coldstream.replay.retry import retry_while_progressing
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.target import SendOptions
from coldstream.replay.transform import MessageTransform
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.terminal.user_function import load_function
from coldstream.units import Offset, TimestampMs

_TELL_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """What a replay is given: the archive, the request, and how its caller follows and stops it."""

    table: ManifestReads
    objects: ObjectReads
    request: ReplayRequest
    options: SendOptions
    on_progress: Callable[[ReplayProgress], None]
    should_stop: Callable[[], bool]


class BrokerReplay(ABC):
    """Publishes a request over one connection after another, until all of it is confirmed.

    A subclass connects, and sends slices. `sent_to` is how far it has sent over the present connection. Of that the
    summary takes over only what is confirmed, `confirmed_to`: the next connection begins there.
    """

    def __init__(self, context: ReplayContext, summary: ReplaySummary, target_text: str) -> None:
        options = context.options
        self.summary = summary
        self.context = context
        self.request = context.request
        self.should_stop = context.should_stop
        self.pace = Pace(options.rate)
        self.transform: MessageTransform | None = None
        if options.transform is not None:
            self.transform = load_function(options.transform, "transform")
        self.window = options.window
        self.sent_to = context.request.start
        self._target_text = target_text
        self._told_at = 0.0
        self._sent_timestamp: TimestampMs | None = None

    def run(self) -> ReplaySummary:
        """Publish the request; return once all is confirmed, or `should_stop` is true."""
        asyncio.run(self._run())
        return self.summary

    @abstractmethod
    async def connect_and_publish(self) -> None:
        """Open a connection, and publish over it what is left. Raises UnavailableError if another one may help."""

    @abstractmethod
    async def send_slice(self, part: ScanSlice, chunks: list[Chunk], start: Offset) -> None:
        """Send the messages of a slice from `start` on; move `sent_to`, and call `tell` now and then.

        Returns early if `should_stop` is true.
        """

    @abstractmethod
    def safe_to(self) -> Offset:
        """Return the offset before which all is confirmed, of what was sent over the present connection."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until all that was sent is confirmed."""

    def keep(self) -> None:  # noqa: B027  not every target needs it
        """Keep how far the replay is, if the broker itself does not know."""

    def leave_out(
        self, first_offset: int, next_offset: int, reason: LeftOutReason, time: TimestampMs | None = None
    ) -> None:
        """Tell of messages that are left out, if anybody keeps account of them."""
        if self.context.options.on_left_out is not None:
            self.context.options.on_left_out(LeftOutMessages(Offset(first_offset), Offset(next_offset), reason, time))

    def is_in_window(self, message: Message) -> bool:
        """Tell whether a message is of the window; tell of one that is too late for it."""
        if self.window is None:
            return True
        time = self.window.time_of(message)
        if self.window.is_late(time):
            self.leave_out(message.offset, message.offset + 1, LeftOutReason.LATE, time)
        return self.window.takes_time(time)

    async def publish(self, start: Offset) -> None:
        """Read and send from an offset on, and wait for the confirms."""
        self.sent_to = start
        context = self.context
        is_complete = start >= self.request.end
        with read_ahead(context.table, context.objects, self.request, start) as steps:
            while not self.should_stop() and not is_complete:
                # Reading blocks: in a thread, confirms are taken meanwhile.
                match step := await asyncio.to_thread(next, steps, None):
                    case None:
                        is_complete = True
                    case Gap():
                        if step not in self.summary.gaps:  # seen over an earlier connection, it is there already
                            self.summary.gaps.append(step)
                            if context.options.on_gap is not None:
                                context.options.on_gap(step)
                    case (part, chunks):
                        await self.send_slice(part, chunks, start)
                        self._sent_timestamp = part.latest_timestamp
        if is_complete:
            self.sent_to = self.request.end  # also if a gap ends the request
        await self.flush()
        # Only after the flush: if that fails, what was sent last may not be there.
        self.summary.is_complete = is_complete
        self.tell(now=True)

    def record_confirmed(self) -> None:
        """Take over how much is confirmed. It never falls: a new connection starts lower than the last one ended."""
        self.summary.confirmed_to = Offset(max(self.summary.confirmed_to, self.safe_to()))

    def tell(self, *, now: bool = False) -> None:
        """Record what is confirmed, and from time to time keep it and tell the caller."""
        self.record_confirmed()
        if not now and time.monotonic() - self._told_at <= _TELL_EVERY_S:
            return
        self._told_at = time.monotonic()
        self.keep()
        summary = self.summary
        self.context.on_progress(
            ReplayProgress(
                self.request.start,
                self.request.end,
                summary.confirmed_to,
                summary.messages,
                summary.sent_bytes,
                self._sent_timestamp,
            )
        )

    async def _run(self) -> None:
        began = time.monotonic()
        what = f"{self.request.stream} into {self._target_text}"
        try:
            await retry_while_progressing(
                self.connect_and_publish, lambda: self.summary.confirmed_to, what, self.should_stop
            )
        finally:
            # Also after an error or an interrupt: the next run begins at what is kept.
            self.keep()
        self.summary.seconds = time.monotonic() - began
