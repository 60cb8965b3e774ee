"""rstream reading a stream from its first message: what it writes is in ../README.md."""

from __future__ import annotations

import asyncio
import hashlib
import sys

from rstream import Consumer, ConsumerOffsetSpecification, MessageContext, OffsetType, OnClosedErrorInfo

from tests.support.codecs import register_codecs

LINE = 10_000


async def read(host: str, port: int, stream: str, messages: int) -> None:
    """Take so many messages and write their lines."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    digest = hashlib.sha256()
    number = count = first = 0
    last = -1

    def take(message: bytes, context: MessageContext) -> None:
        nonlocal digest, number, count, first, last
        offset = context.offset
        if number == messages or done.done():
            return
        if offset <= last:
            done.set_exception(AssertionError(f"offset {offset} after {last}"))
            return
        first = offset if count == 0 else first
        last = offset
        count += 1
        number += 1
        digest.update(b"%b%b%b" % (offset.to_bytes(8), len(message).to_bytes(4), message))
        if count == LINE or number == messages:
            sys.stdout.write(f"{first} {last} {count} {digest.hexdigest()}\n")
            sys.stdout.flush()
            digest = hashlib.sha256()
            count = 0
        if number == messages:
            done.set_result(None)

    async def closed(error: OnClosedErrorInfo) -> None:
        if not done.done():
            done.set_exception(AssertionError(f"the consumer has ended: {error.reason}"))

    consumer = Consumer(host, port, username="guest", password="guest", on_close_handler=closed)
    await consumer.start()
    spec = ConsumerOffsetSpecification(OffsetType.FIRST)
    await consumer.subscribe(stream, take, offset_specification=spec)  # type: ignore[arg-type]  # raw bytes: no decoder
    await done
    await consumer.close()


if __name__ == "__main__":
    register_codecs()
    asyncio.run(read(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
