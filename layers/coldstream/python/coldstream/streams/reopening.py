"""Going on in another WAL: somebody sealed this process's own, for the sake of another stream, or it was given up.

What was acknowledged is durable, and stays in memory until it is flushed. What was pending is void: the same batches,
at the same offsets, are appended again under the next epoch, before any later one. If another process has opened this
stream, the epoch is not this opening's to raise, and its callers are told.
"""

from __future__ import annotations

from coldstream.manifest.appending import appender_in
from coldstream.manifest.stream import StreamId
from coldstream.streams.engine import StreamEngine
from coldstream.streams.opening import take_epoch
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import Epoch


async def reopen(engine: StreamEngine, stream: StreamId, epoch: Epoch) -> tuple[Epoch, WalWriter]:
    """Open a stream again whose last opening is `epoch`, and return the next epoch and the WAL of its batches.

    Cost: that of `take_epoch`. Raises ExpiredEpochError, StreamNotFoundError, UnavailableError.
    """
    wal = await engine.writer()
    head = await engine.call(take_epoch, engine.archive, stream, wal.place, after=epoch)
    return appender_in(head).epoch, wal
