"""What the gateway is measured with: a broker's streams with segments made beforehand, and an archive.

A broker merges what comes together into one chunk. So segments are written as it writes them, and put into its
directories while it is stopped: their chunks are as large as a measurement needs them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.archive import archive
from bench.brokers import new_broker
from bench.harness import CannotMeasureError
from bench.load import FIRST_TIMESTAMP
from bench.stream_client import amqp_message
from coldstream.format.writer import SegmentWriter
from coldstream.ingest.segment_files import segment_files
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.units import Offset, TimestampMs
from tests.support.broker import Broker

SEGMENT_BYTES = 500_000_000
STARTS_WITHIN_S = 30
SHARED_CHUNKS = 10
"""Those at the archive's end that the broker still has."""


@dataclass(frozen=True, slots=True)
class WrittenStream:
    """A stream of equal chunks. If it is archived, the broker has lost all but some chunks after these."""

    name: str
    chunks: int
    messages_a_chunk: int
    is_archived: bool = False

    @property
    def messages(self) -> int:
        """All messages."""
        return self.chunks * self.messages_a_chunk


@contextmanager
def broker_with(
    written: Sequence[WrittenStream],
    empty: Mapping[str, int],
    *,
    message_bytes: int,
    sdk: Mapping[str, str],
    table: str,
    settings: str,
) -> Iterator[Broker]:
    """Start a broker with streams; the empty ones have a retention, in bytes. Then archive those that are archived."""
    with new_broker(settings) as broker:
        with broker.connect() as streams:
            for stream in written:
                streams.create_stream(stream.name, max_segment_bytes=SEGMENT_BYTES)
            for name, retention_bytes in empty.items():
                streams.create_stream(name, max_segment_bytes=retention_bytes // 4, max_length_bytes=retention_bytes)
            directories = {stream: broker.stream_directory(stream.name) for stream in written}
        broker.stop()
        message = amqp_message(message_bytes)
        for stream, directory in directories.items():
            _write(stream, directory, message)
            if stream.is_archived:
                rolled = find_rolled(directory)
                archive(rolled, StreamId("/", stream.name, incarnation(directory.name)), sdk, table)
                _remove(directory, Offset(0))
        broker.start()
        _wait_for_leaders(broker, [stream.name for stream in written])
        yield broker


def _write(stream: WrittenStream, directory: Path, message: bytes) -> None:
    _remove(directory, Offset(0))
    parts = [(Offset(0), stream.chunks, stream.chunks)]
    if stream.is_archived:
        # A segment that the archive has, too, and the one that the broker writes to.
        parts.append((Offset(stream.messages), SHARED_CHUNKS, SHARED_CHUNKS + 1))
    entries = [message] * stream.messages_a_chunk
    for first_offset, chunks_a_segment, chunks in parts:
        with SegmentWriter(
            directory,
            first_offset=first_offset,
            max_segment_bytes=SEGMENT_BYTES,
            max_segment_chunks=chunks_a_segment,
        ) as writer:
            for number in range(chunks):
                writer.write(entries, timestamp=TimestampMs(FIRST_TIMESTAMP + number))


def _remove(directory: Path, first_offset: Offset) -> None:
    """Remove the segment that begins at an offset."""
    segment = segment_files(directory)[first_offset]
    segment.unlink()
    segment.with_suffix(".index").unlink()


def _wait_for_leaders(broker: Broker, names: Sequence[str]) -> None:
    """Wait until each stream has a leader: the broker goes through a segment's chunks first."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    with broker.connect() as streams:
        while any(streams.ports(name)[0] is None for name in names):
            if time.monotonic() > deadline:
                raise CannotMeasureError(f"a stream has no leader:\n{broker.log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.2)
