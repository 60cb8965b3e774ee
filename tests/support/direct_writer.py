"""A process that appends to direct streams until it is killed, and says what was acknowledged, a line for each batch.

    python -m tests.support.direct_writer TABLE BUCKET STREAMS [DIRECTORY]

It finds AWS by its environment; with a directory, its write-ahead log is there. Each stream has one publisher, which
goes on after the last id that the stream has of it: so ids are one after the other, whoever was killed. Lines are

    ack <stream> <id> <base offset>
    refused <stream> <body>
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from coldstream.errors import ExpiredEpochError, OutcomeUnknownError, UnavailableError, UnexpectedTailError
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.streams import DirectArchive, StreamClient
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.handle import DirectStream
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.disk_store import DiskWalStore
from coldstream.streams.wal.options import WalOptions
from coldstream.units import Offset

PUBLISHER = "publisher"
AT_ONCE = 4
OPTIONS = StreamOptions(
    wal=WalOptions(interval_s=0.02, in_flight=4),
    flush=FlushOptions(fragment_bytes=20_000, flush_age_s=0.5),
    memory_bytes=1 << 20,
)


def body_of(name: str, id_: int) -> bytes:
    """Return what the batch of an id holds."""
    return f"{name} {id_} ".encode().ljust(200, b".")


def archive_in(table: str, bucket: str) -> DirectArchive:
    """Return the archive that is written to."""
    return DirectArchive(DynamoTable(table), S3Objects(bucket), Keys("archive/"))


async def open_again(client: StreamClient, name: str) -> DirectStream:
    """Open a stream, however often it takes."""
    while True:
        try:
            return await client.open_stream(name)
        except (ExpiredEpochError, UnavailableError, OutcomeUnknownError):
            await asyncio.sleep(0.1)


async def write(client: StreamClient, name: str) -> None:
    """Append to one stream for ever; ends if another process has opened it."""
    while True:
        stream = await open_again(client, name)
        last = await stream.publisher_id(PUBLISHER) or 0
        try:
            for first in count(last + 1, AT_ONCE):
                await asyncio.gather(*(append(stream, name, id_) for id_ in range(first, first + AT_ONCE)))
                await refused(stream, name, first)
        except ExpiredEpochError:
            return
        except (UnavailableError, OutcomeUnknownError):
            continue


async def append(stream: DirectStream, name: str, id_: int) -> None:
    """Append a batch, and say so."""
    base = await stream.append([body_of(name, id_)], publisher=PUBLISHER, publishing_id=id_)
    tell(f"ack {name} {id_} {base}")


async def refused(stream: DirectStream, name: str, id_: int) -> None:
    """Append what must not appear, for it expects another tail."""
    body = f"never {name} {os.getpid()} {id_}"
    try:
        await stream.append([body.encode()], expect=Offset(stream.tail + 1))
    except UnexpectedTailError:
        tell(f"refused {name} {body}")


def tell(line: str) -> None:
    """Write a line at once, and whole."""
    os.write(1, line.encode() + b"\n")


async def main(table: str, bucket: str, streams: int, directory: str | None = None) -> None:
    """Append to all streams."""
    wal = None if directory is None else DiskWalStore(Path(directory))
    client = await StreamClient.open(archive_in(table, bucket), OPTIONS, wal=wal)
    await asyncio.gather(*(write(client, f"stream-{number}") for number in range(streams)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:]))
