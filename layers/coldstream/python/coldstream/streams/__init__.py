"""Direct streams: appended to and read without a broker, in the same archive as the broker's.

Begin at `client`: a `StreamClient` creates and opens streams, `handle` has the `DirectStream` that it opens. `wal` is
where batches go first, `flush` takes them from there into the archive, `cache` is what is in memory of both.
"""

from __future__ import annotations

from coldstream.streams.archive import DirectArchive
from coldstream.streams.batch import Batch
from coldstream.streams.blocking import BlockingDirectStream, BlockingStreamClient
from coldstream.streams.client import OpenMode, StreamClient
from coldstream.streams.fetched import FetchedBatch
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.handle import DirectStream
from coldstream.streams.key_values import KeyValues
from coldstream.streams.metrics import StreamMetrics
from coldstream.streams.names import StreamInfo
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.options import WalOptions

__all__ = [
    "Batch",
    "BlockingDirectStream",
    "BlockingStreamClient",
    "DirectArchive",
    "DirectStream",
    "FetchedBatch",
    "FlushOptions",
    "KeyValues",
    "OpenMode",
    "StreamClient",
    "StreamInfo",
    "StreamMetrics",
    "StreamOptions",
    "WalOptions",
]
