"""Replay into a stream or a super stream of a broker, each message exactly once, in order.

    read slices of the archive            read_ahead
    entries under their publishing ids    forward; decoded only for a transformation or a routing key
    publish, and count the confirms       live.publisher

Only the broker remembers what was sent. The publishing id of a message follows from its offset in the source, and the
reference under which it is published from the request (`publisher_name`). So whoever makes the same request again,
after a failure or at the same time, goes on after what is there, and adds nothing twice. Requests with different ends
must not run at the same time. A broker remembers 255 references for each stream, the newest ones.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack

from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.publisher import Publisher
from coldstream.read.scan import ScanSlice
from coldstream.replay.broker_replay import BrokerReplay, ReplayContext
from coldstream.replay.forward import Entry, Frame, Runs, chunk_entries, in_frames
from coldstream.replay.left_out import LeftOutReason
from coldstream.replay.request import ReplayRequest
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.target import SendOptions, StreamTarget
from coldstream.replay.transform import raw_of
from coldstream.routing.murmur3 import partition_of
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset


def publisher_name(request: ReplayRequest, target: StreamTarget, options: SendOptions) -> str:
    """Return the reference to publish under: the same for the same source, start, window, key and transformation.

    It does not depend on the last offset, so a later request with a higher one adds what has come since. The end of a
    time window is part of it: what lies after that is passed over, and another window must not take it for sent.
    """
    if target.publisher is not None:
        return target.publisher
    identity = (
        request.stream.incarnation,
        str(request.start),
        str(target.routing_key or ""),
        options.transform or "",
        *(() if options.window is None else (options.window.identity,)),
    )
    return f"coldstream-replay-{hashlib.sha256(chr(0).join(identity).encode()).hexdigest()[:16]}"


def replay_to_stream(
    table: ManifestReads,
    objects: ObjectReads,
    request: ReplayRequest,
    target: StreamTarget,
    *,
    options: SendOptions = SendOptions(),  # noqa: B008  a frozen value
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ReplaySummary:
    """Publish what is requested; return once all is confirmed, or `should_stop` is true.

    `on_progress` is called about twice a second. A lost connection is opened again, for up to two minutes without
    progress. Raises UnavailableError, StreamNotFoundError (archive or broker), AccessDeniedError, GapError,
    CorruptionError, InvalidInputError. What was confirmed before stays, and the next call does not send it again.
    """
    context = ReplayContext(table, objects, request, options, on_progress, should_stop)
    return _StreamReplay(context, target).run()


def replayed_to(requests: Sequence[ReplayRequest], target: StreamTarget, options: SendOptions) -> list[Offset]:
    """Return up to which offset the target has each request, whoever sent it. Cost: one connection.

    Raises StreamNotFoundError, AccessDeniedError, UnavailableError.
    """

    async def ask() -> list[Offset]:
        async with LiveConnection(BrokerAddress.from_uri(target.broker), target.vhost) as connection:
            names = await _stream_names(connection, target)
            found = []
            for request in requests:
                reference = publisher_name(request, target, options)
                reached = min([await connection.query_sequence(name, reference) for name in names])
                found.append(Offset(min(max(request.start, reached), request.end)))
            return found

    return asyncio.run(ask())


async def _stream_names(connection: LiveConnection, target: StreamTarget) -> Sequence[str]:
    if target.partitions:
        return target.partitions
    return (target.name,) if target.routing_key is None else await connection.partitions(target.name)


class _StreamReplay(BrokerReplay):
    """Publishes to one stream, or to each partition of a super stream over a publisher of its own."""

    def __init__(self, context: ReplayContext, target: StreamTarget) -> None:
        request = context.request
        reference = publisher_name(request, target, context.options)
        summary = ReplaySummary(request.stream, target.name, request.start, request.end, reference)
        super().__init__(context, summary, repr(target.name))
        self._target = target
        self._place_of = target.place_of
        if target.routing_key is not None:
            key = target.routing_key
            self._place_of = lambda message: partition_of(key.of(message), len(self._publishers))
        self._publishers: list[Publisher] = []
        self._is_first = True
        self._counted_to: dict[int, int] = {}  # by partition: the publishing id up to which messages are counted
        self._left_out_to = 0

    async def connect_and_publish(self) -> None:
        address = BrokerAddress.from_uri(self._target.broker)
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(
                LiveConnection(address, self._target.vhost, name="coldstream-replay")
            )
            names = await _stream_names(connection, self._target)
            reference = self.summary.publisher
            self._publishers = [await stack.enter_async_context(connection.publish(name, reference)) for name in names]
            # What every partition has is not read again. What only some have is read, and those drop it by its id.
            resume_at = self.context.options.resume_at
            if resume_at is None:
                start = Offset(max(self.request.start, min(publisher.sequence for publisher in self._publishers)))
            else:
                # From there on all is read, also what the broker has: what is left out of it is to be told. And a
                # broker forgets references after some time, while whoever says this remembers.
                start = Offset(max(self.request.start, resume_at, self.summary.confirmed_to))
            if self._is_first:
                self._is_first = False
                self.summary.resumed_at = min(start, self.request.end)
                self.summary.confirmed_to = self.summary.resumed_at
            await self.publish(start)

    def safe_to(self) -> Offset:
        return Offset(min(publisher.safe_to(self.sent_to) for publisher in self._publishers))

    async def flush(self) -> None:
        for publisher in self._publishers:
            await publisher.flush()

    async def send_slice(self, part: ScanSlice, chunks: list[Chunk], start: Offset) -> None:
        for number, frame in self._frames(part, chunks, max(start, part.start)):
            await self.pace.wait(frame.messages, self.should_stop)
            # The wait may have been long: a stop that came meanwhile must not send another frame.
            if self.should_stop():
                return
            await self._publishers[number].send(frame.pieces, frame.size_bytes, frame.entries, frame.last_id)
            # A new connection sends again what the broken one had sent, and counts none of it again.
            counted_to = self._counted_to.get(number, 0)
            self.summary.messages += frame.messages_after(counted_to)
            self._counted_to[number] = max(counted_to, frame.last_id)
            self.summary.sent_bytes += frame.size_bytes
            if len(self._publishers) == 1:  # partitions are equally far only at the end of a slice
                self.sent_to = Offset(frame.last_id)
            self.tell()
        self.sent_to = part.end

    def _frames(self, part: ScanSlice, chunks: list[Chunk], start: Offset) -> Iterator[tuple[int, Frame]]:
        """Yield the frames of a slice, each with the number of its publisher."""
        max_bytes = self._publishers[0].max_frame_bytes
        chunks = [chunk for chunk in chunks if self._takes_chunk(chunk, part, start)]
        if not self._is_decoded(part):
            start = max(start, Offset(self._publishers[0].sequence))
            entries = (entry for chunk in chunks for entry in chunk_entries(chunk, start, part.end, source=part.key))
            yield from ((0, frame) for frame in in_frames(entries, max_bytes, self.pace.piece))
            return
        waiting: list[list[Entry]] = [[] for _ in self._publishers]
        for chunk in chunks:
            for number, entry in self._decoded_entries(chunk, part, start):
                waiting[number].append(entry)
        for number, entries_of_one in enumerate(waiting):
            yield from ((number, frame) for frame in in_frames(entries_of_one, max_bytes, self.pace.piece))

    def _is_decoded(self, part: ScanSlice) -> bool:
        """Tell whether each message has to be looked at; else entries are sent as they are."""
        if self._place_of is not None or self.transform is not None:
            return True
        has_times = self.window is not None and self.window.by_message
        return has_times or (part.erased and self.context.options.on_left_out is not None)

    def _takes_chunk(self, chunk: Chunk, part: ScanSlice, start: Offset) -> bool:
        """Tell whether messages of a chunk may be in the window."""
        header = chunk.header
        if self.window is None or self.window.by_message or header.type is not ChunkType.USER:
            return True
        if self.window.is_late(header.timestamp):
            first, after = max(header.chunk_id, start), min(header.next_offset, part.end)
            self.leave_out(first, after, LeftOutReason.LATE, header.timestamp)
        return self.window.takes_time(header.timestamp)

    def _decoded_entries(self, chunk: Chunk, part: ScanSlice, start: Offset) -> Iterator[tuple[int, Entry]]:
        """Yield the transformed and routed messages of a chunk as entries, each with the number of its publisher."""
        # What is the same for all messages is looked up once: a look for each takes as long as to unpack it.
        place_of, transform, end = self._place_of, self.transform, part.end
        has_window = self.window is not None
        # Only these leave out a message that could be sent.
        may_refuse = place_of is not None or self.context.options.on_left_out is not None
        runs = [Runs() for _ in self._publishers]
        sequences = [publisher.sequence for publisher in self._publishers]
        number = 0
        for message in messages(chunk, source=part.key, from_offset=start):
            offset = message.offset
            if offset >= end:
                break
            if has_window and not self.is_in_window(message):
                continue
            result = message if transform is None else transform(message)
            # Most messages come back as they are, and to ask for the type of one takes as long as to unpack it.
            raw = message.raw if result is message else raw_of(result)
            reason = self._why_not(message) if may_refuse else None
            if raw is None or reason is not None:
                # Counted once, also if a new connection reads it again.
                self.summary.left_out += offset >= self._left_out_to
                self._left_out_to = max(self._left_out_to, offset + 1)
                if reason is not None:
                    self.leave_out(offset, offset + 1, reason)
                continue
            if place_of is not None:
                number = place_of(message)
            publishing_id = offset + 1
            # The broker sees only the last id of a run: one message that it lacks would take those before it in the run
            # along, and publish them twice.
            if publishing_id > sequences[number]:
                runs[number].add(publishing_id, raw)
        for number, run in enumerate(runs):
            yield from ((number, entry) for entry in run.entries())

    def _why_not(self, message: Message) -> LeftOutReason | None:
        """Tell why a message cannot be sent, None if it can."""
        reports = self.context.options.on_left_out is not None
        # An erased message has no routing key, and nothing to deliver. Without keys it goes as it is, unless somebody
        # keeps account of what is missing.
        if message.raw == ERASED_MESSAGE and (reports or self._place_of is not None):
            return LeftOutReason.ERASED
        key = self._target.routing_key
        return LeftOutReason.NO_KEY if reports and key is not None and key.find(message) is None else None
