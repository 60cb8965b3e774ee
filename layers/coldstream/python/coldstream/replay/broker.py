"""Replay a stream into a stream or a super stream of a broker, each message exactly once, in order.

    read slices of the archive          source, ahead of
    entries behind publishing ids       forward; decoded only for a transformation or a routing key
    publish, and count the confirms     live.publisher

What was sent is remembered by the broker alone: the publishing id of a message follows from its offset in the source,
and the reference under which it is published from what is asked for (`publisher_name`). So whoever is asked for the
same again, after a failure or at the same time, goes on behind what is there, and adds nothing twice; only with another
end it must not be at the same time. Brokers remember 255 references for each stream, the newest ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from coldstream.flow.pace import Pace
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.publisher import Publisher
from coldstream.manifest.entry import Gap
from coldstream.read.scan import Slice
from coldstream.replay.forward import Entry, Frame, Runs, chunk_entries, in_frames
from coldstream.replay.request import ReplayRequest, read_ahead
from coldstream.replay.retry import retry_while_progressing
from coldstream.replay.routing import RoutingKey, partition_of
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.transform import Transform, encoded, load_function
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset

_PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """A stream of a broker, or with `routing_key` a super stream, to whose partitions messages go by that key.

    `broker` is the URI of the stream protocol (live.address). `publisher` is the reference to publish under instead of
    one that follows from what is asked for.
    """

    broker: str = field(repr=False)
    name: str
    vhost: str = "/"
    routing_key: RoutingKey | None = None
    publisher: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerReplayOptions:
    """How to send: messages a second at most, and a function, `module:function`, that filters and maps them."""

    rate: float | None = None
    transform: str | None = None


@dataclass(frozen=True, slots=True)
class _Archive:
    table: ManifestReads
    objects: ObjectReads


def publisher_name(source: ReplayRequest, target: StreamTarget, options: BrokerReplayOptions) -> str:
    """Return the reference under which a source is published: the same for the same source, start and way.

    The end is no part of it, so what has come since is added by asking again with a later one.
    """
    if target.publisher is not None:
        return target.publisher
    asked = (source.stream.incarnation, str(source.start), str(target.routing_key or ""), options.transform or "")
    return f"coldstream-replay-{hashlib.sha256(chr(0).join(asked).encode()).hexdigest()[:16]}"


def replay_to_broker(
    table: ManifestReads,
    objects: ObjectReads,
    source: ReplayRequest,
    target: StreamTarget,
    *,
    options: BrokerReplayOptions = BrokerReplayOptions(),
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ReplaySummary:
    """Publish a source, and return when all is confirmed, or once `should_stop` is true.

    `on_progress` is called about twice a second. A connection that is lost is opened again, for up to two minutes
    without progress. Raises UnavailableError, StreamNotFoundError (archive or broker),
    AccessDeniedError, GapError, CorruptionError, InvalidInputError: what was confirmed before stays, and is not sent
    again by the next call.
    """
    replay = _Replay(_Archive(table, objects), source, target, options, on_progress, should_stop)
    asyncio.run(replay.run())
    return replay.summary


def replayed_to(sources: Sequence[ReplayRequest], target: StreamTarget, options: BrokerReplayOptions) -> list[Offset]:
    """Return up to which offset each source is at the target already, whoever sent it. Cost: one connection.

    Raises StreamNotFoundError, AccessDeniedError, UnavailableError.
    """

    async def ask() -> list[Offset]:
        async with LiveConnection(BrokerAddress.from_uri(target.broker), target.vhost) as connection:
            names = await _streams(connection, target)
            found = []
            for source in sources:
                reference = publisher_name(source, target, options)
                reached = min([await connection.query_sequence(name, reference) for name in names])
                found.append(Offset(min(max(source.start, reached), source.end)))
            return found

    return asyncio.run(ask())


async def _streams(connection: LiveConnection, target: StreamTarget) -> Sequence[str]:
    return (target.name,) if target.routing_key is None else await connection.partitions(target.name)


class _Replay:
    def __init__(  # noqa: PLR0917  called once
        self,
        archive: _Archive,
        source: ReplayRequest,
        target: StreamTarget,
        options: BrokerReplayOptions,
        on_progress: Callable[[ReplayProgress], None],
        should_stop: Callable[[], bool],
    ) -> None:
        publisher = publisher_name(source, target, options)
        self.summary = ReplaySummary(source.stream, target.name, source.start, source.end, publisher)
        self._archive = archive
        self._source = source
        self._target = target
        self._pace = Pace(options.rate)
        self._transform: Transform | None = None if options.transform is None else load_function(options.transform)
        self._on_progress = on_progress
        self._should_stop = should_stop
        self._told_at = 0.0
        self._is_first = True
        self._sent_to = source.start
        self._counted_to: dict[int, int] = {}  # publishing ids of what is counted, by partition
        self._left_out_to = 0

    async def run(self) -> None:
        began = time.monotonic()
        what = f"{self._source.stream} into {self._target.name!r}"
        await retry_while_progressing(self._once, lambda: self.summary.confirmed_to, what)
        self.summary.seconds = time.monotonic() - began

    async def _once(self) -> None:
        """Publish what is left over one connection."""
        address = BrokerAddress.from_uri(self._target.broker)
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(
                LiveConnection(address, self._target.vhost, name="coldstream-replay")
            )
            names = await _streams(connection, self._target)
            reference = self.summary.publisher
            publishers = [await stack.enter_async_context(connection.publish(name, reference)) for name in names]
            # What every partition has is not read again.
            start = max(self._source.start, Offset(min(publisher.sequence for publisher in publishers)))
            if self._is_first:
                self._is_first = False
                self.summary.resumed_at = min(start, self._source.end)
                self.summary.confirmed_to = self.summary.resumed_at
            await self._publish(publishers, start)

    async def _publish(self, publishers: list[Publisher], start: Offset) -> None:
        self._sent_to = start
        is_whole = False
        with read_ahead(self._archive.table, self._archive.objects, self._source, start) as steps:
            while not self._should_stop() and not is_whole:
                match step := await asyncio.to_thread(next, steps, None):
                    case None:
                        is_whole = True
                        self._sent_to = self._source.end
                    case Gap():
                        if step not in self.summary.gaps:
                            self.summary.gaps.append(step)
                    case (part, chunks):
                        await self._send(publishers, part, chunks, start)
        for publisher in publishers:
            await publisher.flush()
        self.summary.is_complete = is_whole
        self._tell(publishers, now=True)

    async def _send(self, publishers: list[Publisher], part: Slice, chunks: list[Chunk], start: Offset) -> None:
        for number, frame in self._frames(publishers, part, chunks, max(start, part.start)):
            await self._pace.wait(frame.messages, self._should_stop)
            if self._should_stop():
                return
            await publishers[number].send(frame.data, frame.entries, frame.last_id)
            # What a connection that broke had sent is sent again, and is no more messages than before.
            counted_to = self._counted_to.get(number, 0)
            self.summary.messages += frame.messages_after(counted_to)
            self._counted_to[number] = max(counted_to, frame.last_id)
            self.summary.sent_bytes += len(frame.data)
            if len(publishers) == 1:  # partitions are not equally far, but at the end of a slice
                self._sent_to = Offset(frame.last_id)
            self._tell(publishers)
        self._sent_to = part.end

    def _frames(
        self, publishers: list[Publisher], part: Slice, chunks: list[Chunk], start: Offset
    ) -> Iterator[tuple[int, Frame]]:
        """Yield what is to be sent of a slice, each frame with the number of its publisher."""
        max_bytes = publishers[0].max_frame_bytes
        if self._target.routing_key is None and self._transform is None:
            entries = (entry for chunk in chunks for entry in chunk_entries(chunk, start, part.end, source=part.key))
            yield from ((0, frame) for frame in in_frames(entries, max_bytes, self._pace.piece))
            return
        waiting: list[list[Entry]] = [[] for _ in publishers]
        for chunk in chunks:
            for number, entry in self._made(publishers, chunk, part, start):
                waiting[number].append(entry)
        for number, made in enumerate(waiting):
            yield from ((number, frame) for frame in in_frames(made, max_bytes, self._pace.piece))

    def _made(
        self, publishers: list[Publisher], chunk: Chunk, part: Slice, start: Offset
    ) -> Iterator[tuple[int, Entry]]:
        """Yield what a function, or routing, makes of a chunk, each entry with the number of its publisher."""
        key = self._target.routing_key
        runs = [Runs() for _ in publishers]
        for message in messages(chunk, source=part.key, from_offset=start):
            if message.offset >= part.end:
                break
            raw = encoded(message, self._transform)
            if raw is None:
                self.summary.left_out += message.offset >= self._left_out_to
                self._left_out_to = max(self._left_out_to, message.offset + 1)
                continue
            number = 0 if key is None else partition_of(key.of(message), len(publishers))
            publishing_id = message.offset + 1
            if publishing_id > publishers[number].sequence:
                yield from ((number, entry) for entry in runs[number].add(publishing_id, raw))
        for number, run in enumerate(runs):
            yield from ((number, entry) for entry in run.cut())

    def _tell(self, publishers: list[Publisher], *, now: bool = False) -> None:
        """Take note of how far it is, and tell it from time to time."""
        safe_to = min(publisher.safe_to(self._sent_to) for publisher in publishers)
        self.summary.confirmed_to = Offset(max(self.summary.confirmed_to, safe_to))
        if now or time.monotonic() - self._told_at > _PROGRESS_EVERY_S:
            self._told_at = time.monotonic()
            summary = self.summary
            self._on_progress(
                ReplayProgress(
                    self._source.start, self._source.end, summary.confirmed_to, summary.messages, summary.sent_bytes
                )
            )
