"""`OpenStream`: a stream at the moment when it was opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coldstream.manifest.stream import StreamId
from coldstream.streams.publishers import Publishers
from coldstream.units import Epoch, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream as it was opened: everything up to `tail` is in the manifest, or, for a snapshot, in a WAL.

    `timestamp` is that of its newest batch. `publishers` are None if it has none. `is_brokers` says that
    it is the archived stream of a broker, which nobody appends to here.
    """

    stream: StreamId
    epoch: Epoch
    properties: Mapping[str, str]
    start: Offset
    tail: Offset
    timestamp: TimestampMs
    is_sealed: bool = False
    publishers: Publishers | None = None
    is_brokers: bool = False
