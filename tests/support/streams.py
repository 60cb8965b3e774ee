"""The stream protocol without asyncio: create streams, publish entries of every kind, store consumers' offsets.

The client is rstream's, its lower layer: there, entries reach the broker in the order they are given, plain messages
and sub-batches mixed, which the producer on top of it does not promise.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rstream import CompressionType, OffsetType, schema
from rstream.client import Client
from rstream.compression import CompressionHelper
from rstream.exceptions import LeaderNotAvailable, StreamNotAvailable

from coldstream.live.wire import WireText
from tests.support.codecs import register_codecs

FRAME_BYTES = 1 << 20
MESSAGES_IN_FRAME = 1000
CREDITS = 10

register_codecs()


class PublishError(Exception):
    """The broker refused messages, or did not confirm them in time."""


@dataclass(frozen=True, slots=True)
class SubBatch:
    """1 to 65,535 messages that travel, and are stored, as one entry."""

    messages: Sequence[bytes]
    compression: CompressionType = CompressionType.No


class StreamConnection:
    """A connection to one vhost, used as a context manager; not from within a running event loop."""

    def __init__(self, host: str, port: int, vhost: str = "/", *, timeout_s: float = 30) -> None:
        self._address = host, port
        self._vhost = WireText(vhost)
        self._timeout_s = timeout_s
        self._publisher_ids = itertools.cycle(range(256))

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._runner.__enter__()
        try:
            self._client = self._runner.run(self._open())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._client.close())
        finally:
            self._runner.close()

    def create_stream(
        self,
        stream: str,
        *,
        max_segment_bytes: int,
        max_length_bytes: int | None = None,
        max_age: str | None = None,
    ) -> None:
        """Declare a stream. `max_age` is the broker's own notation, such as `10s`."""
        if max_segment_bytes < 100_000:
            raise ValueError("the broker rolls without end where a tracking snapshot is as large as a segment")
        arguments = {
            "stream-max-segment-size-bytes": max_segment_bytes,
            "max-length-bytes": max_length_bytes,
            "max-age": max_age,
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        self._runner.run(self._client.create_stream(WireText(stream), given))

    def delete_stream(self, stream: str) -> None:
        """Delete a stream and its files."""
        self._runner.run(self._client.delete_stream(WireText(stream)))

    def publish(
        self,
        stream: str,
        entries: Iterable[bytes | SubBatch],
        *,
        publisher: str = "",
        filter_value: str | None = None,
    ) -> int:
        """Publish entries in their order, wait until the broker has confirmed all, and return how many messages.

        A named publisher goes on from its last publishing id, and leaves tracking in the chunks' trailers. Brokers
        since 3.13 take plain messages with a `filter_value`, which ends up in the chunks' bloom filters. Raises
        PublishError.
        """
        return self._runner.run(self._publish(WireText(stream), entries, WireText(publisher), filter_value))

    def send(self, stream: str, messages: Iterable[bytes]) -> None:
        """Publish messages without waiting for confirms: for a leader that cannot commit them."""
        self._runner.run(self._send(WireText(stream), messages))

    def ports(self, stream: str) -> tuple[int | None, list[int]]:
        """Return the ports of the stream's leader, None while there is none, and of its other replicas that run."""
        return self._runner.run(self._ports(WireText(stream)))

    def store_offset(self, stream: str, reference: str, offset: int) -> None:
        """Store a consumer's offset, and wait until the broker knows it: it ends in a tracking chunk."""
        self._runner.run(self._store_offset(WireText(stream), WireText(reference), offset))

    def read(self, stream: str, messages: int) -> list[tuple[int, bytes]]:
        """Return the first messages of a stream as a consumer gets them from the broker, each with its offset.

        At least as many as asked for, up to the end of a chunk. Raises TimeoutError where there are fewer.
        """
        return self._runner.run(self._read(WireText(stream), messages))

    async def _open(self) -> Client:
        host, port = self._address
        client = Client(host, port, frame_max=FRAME_BYTES, heartbeat=0, connection_closed_handler=lambda _: None)
        await client.start()
        await client.authenticate(self._vhost, "guest", "guest")
        return client

    async def _publish(
        self, stream: str, entries: Iterable[bytes | SubBatch], publisher: str, filter_value: str | None
    ) -> int:
        publisher_id = next(self._publisher_ids)
        await self._client.declare_publisher(stream, publisher, publisher_id)
        first_id = await self._client.query_publisher_sequence(stream, publisher) + 1 if publisher else 0
        confirms = _Confirms(publisher_id)
        self._client.add_handler(schema.PublishConfirm, confirms.on_confirm, name=str(publisher_id))
        self._client.add_handler(schema.PublishError, confirms.on_error, name=str(publisher_id))
        messages = 0
        for frame, entries_in_frame, messages_in_frame in _frames(publisher_id, first_id, entries, filter_value):
            confirms.sent += entries_in_frame
            messages += messages_in_frame
            if isinstance(frame, schema.Publish):
                await self._client.send_publish_frame(frame, version=1 if filter_value is None else 2)
            else:
                await self._client.send_frame(frame)
            await confirms.wait(at_most_open=10 * MESSAGES_IN_FRAME, timeout_s=self._timeout_s)
        await confirms.wait(at_most_open=0, timeout_s=self._timeout_s)
        self._client.remove_handler(schema.PublishConfirm, name=str(publisher_id))
        self._client.remove_handler(schema.PublishError, name=str(publisher_id))
        await self._client.delete_publisher(publisher_id)
        return messages

    async def _send(self, stream: str, messages: Iterable[bytes]) -> None:
        publisher_id = next(self._publisher_ids)
        await self._client.declare_publisher(stream, "", publisher_id)
        for frame, _, _ in _frames(publisher_id, 0, messages):
            assert isinstance(frame, schema.Publish)
            await self._client.send_publish_frame(frame)

    async def _ports(self, stream: str) -> tuple[int | None, list[int]]:
        try:
            leader, replicas = await self._client.query_leader_and_replicas(stream)
        except (LeaderNotAvailable, StreamNotAvailable):
            return None, []
        return leader.port, [replica.port for replica in replicas]

    async def _store_offset(self, stream: str, reference: str, offset: int) -> None:
        # The command has no answer of its own, but the query behind it is answered after it.
        await self._client.store_offset(stream, reference, offset)
        async with asyncio.timeout(self._timeout_s):
            await self._client.query_offset(stream, reference)

    async def _read(self, stream: str, messages: int) -> list[tuple[int, bytes]]:
        chunks: asyncio.Queue[schema.Deliver] = asyncio.Queue()
        subscription = 0
        self._client.add_handler(schema.Deliver, chunks.put, name=str(subscription))
        await self._client.run_queue_listener_task(subscription, chunks.put)
        from_first = schema.OffsetSpec(OffsetType.FIRST)
        await self._client.subscribe(stream, subscription, from_first, initial_credit=CREDITS)
        read: list[tuple[int, bytes]] = []
        async with asyncio.timeout(self._timeout_s):
            while len(read) < messages:
                chunk = await chunks.get()
                read += enumerate(chunk.get_messages(), chunk.chunk_first_offset)
                await self._client.credit(subscription, 1)
        await self._client.unsubscribe(subscription)
        await self._client.stop_queue_listener_task(subscription)
        self._client.remove_handler(schema.Deliver, name=str(subscription))
        return read


class _Confirms:
    """How many of the entries sent by one publisher the broker has confirmed."""

    def __init__(self, publisher_id: int) -> None:
        self.sent = 0
        self._publisher_id = publisher_id
        self._confirmed = 0
        self._error: str | None = None
        self._news = asyncio.Event()

    def on_confirm(self, frame: schema.PublishConfirm) -> None:
        if frame.publisher_id == self._publisher_id:
            self._confirmed += len(frame.publishing_ids)
            self._news.set()

    def on_error(self, frame: schema.PublishError) -> None:
        if frame.publisher_id == self._publisher_id:
            self._error = f"response code {frame.errors[0].response_code} for {len(frame.errors)} entries"
            self._news.set()

    async def wait(self, *, at_most_open: int, timeout_s: float) -> None:
        while self.sent - self._confirmed > at_most_open:
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError as err:
                missing = self.sent - self._confirmed
                raise PublishError(f"{missing} of {self.sent} entries unconfirmed after {timeout_s} s") from err
            if self._error is not None:
                raise PublishError(self._error)


def _frames(
    publisher_id: int, first_id: int, entries: Iterable[bytes | SubBatch], filter_value: str | None = None
) -> Iterator[tuple[schema.Publish | schema.PublishSubBatching, int, int]]:
    """Yield frames, each with its number of entries and of messages."""
    plain: list[schema.Message] = []
    plain_bytes = 0
    for publishing_id, entry in enumerate(entries, first_id):
        flush = isinstance(entry, SubBatch) or plain_bytes + len(entry) > FRAME_BYTES // 2
        if plain and (flush or len(plain) == MESSAGES_IN_FRAME):
            yield schema.Publish(publisher_id, plain), len(plain), len(plain)
            plain, plain_bytes = [], 0
        if isinstance(entry, SubBatch):
            yield _sub_batch_frame(publisher_id, publishing_id, entry), 1, len(entry.messages)
        else:
            plain.append(schema.Message(publishing_id, filter_value, entry))
            plain_bytes += len(entry)
    if plain:
        yield schema.Publish(publisher_id, plain), len(plain), len(plain)


def _sub_batch_frame(publisher_id: int, publishing_id: int, batch: SubBatch) -> schema.PublishSubBatching:
    packed = CompressionHelper.compress(batch.messages, batch.compression)
    return schema.PublishSubBatching(
        publisher_id=publisher_id,
        number_of_root_messages=1,
        publishing_id=publishing_id,
        compress_type=0x80 | packed.compression_type() << 4,
        subbatching_message_count=packed.messages_count(),
        uncompressed_data_size=packed.uncompressed_size(),
        compressed_data_size=packed.compressed_size(),
        messages=packed.data(),
    )
