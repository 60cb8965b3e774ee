"""Stock clients in Java, Go, Rust and JavaScript, as they are, without a broker: what one writes, the others read."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import Create, DeclarePublisher
from coldstream.streams import DirectArchive, OpenMode, StreamClient
from tests.gateway.clients.programs import StockClient, find_go, find_javascript, find_rust
from tests.support.alone import HOST, confirmed, publish, running_alone
from tests.support.fixtures import do_without
from tests.support.stock_producer import StockProducer, compile_producer, find_stream_client

pytestmark = pytest.mark.server
KEYS = ("invoice", "Ärger", "東京", "a", "b", "c")
LINE = 10_000
MESSAGES = 3 * LINE


async def bodies(archive: DirectArchive, stream: str) -> list[bytes]:
    found: list[bytes] = []
    async with await StreamClient.open(archive) as client:
        handle = await client.open_stream(stream, mode=OpenMode.SNAPSHOT)
        at = handle.start
        while batches := await handle.fetch(at):
            for batch in batches:
                found += [bytes(message.body or b"") for message in batch.messages()]
                at = batch.next_offset
    return found


@pytest.mark.skipif(find_stream_client() is None, reason="the Java client is not there: scripts/stream-client/fetch")
async def test_the_java_client_publishes_to_a_super_stream_of_direct_streams(tmp_path: Path) -> None:
    archive = DirectArchive.in_memory()
    partitions = [f"orders-{number}" for number in range(3)]
    options = AloneOptions(super_streams=("orders",))
    async with running_alone(archive, options=options) as alone:
        for name in partitions:
            await alone.parts.host.create("/", name)
        classes = await asyncio.to_thread(compile_producer, tmp_path)
        uri = f"rabbitmq-stream://guest:guest@{HOST}:{alone.port}"
        producer = StockProducer(classes, uri, super_stream="orders", name="till", keys=KEYS, padding=20)
        await asyncio.to_thread(producer.start)
        try:
            await asyncio.to_thread(producer.publish, 200)
            await asyncio.to_thread(producer.finish)
        finally:
            if producer._process is not None:
                await asyncio.to_thread(producer.kill)
    found: dict[str, list[int]] = defaultdict(list)
    places: dict[str, set[str]] = defaultdict(set)
    for name in partitions:
        for body in await bodies(archive, name):
            match = re.match(r"(.*)/(\d+)/till-1:", body.decode())
            assert match is not None
            found[match[1]].append(int(match[2]))
            places[match[1]].add(name)
    assert found == {key: list(range(200)) for key in KEYS}
    assert all(len(names) == 1 for names in places.values())


@pytest.mark.parametrize("find", [find_go, find_rust, find_javascript])
async def test_other_clients_read_what_was_written_without_a_broker(find: Callable[[], StockClient | None]) -> None:
    found = find()
    if found is None:
        do_without("a stock client", "make gateway-clients")
    archive = DirectArchive.in_memory()
    async with running_alone(archive) as alone, alone.client() as client:
        assert await client.code(lambda number: Create(number, "orders", {})) == Code.OK
        assert await client.code(lambda number: DeclarePublisher(number, 1, None, "orders")) == Code.OK
        sent = [b"message %05d" % number for number in range(MESSAGES)]
        for at in range(0, MESSAGES, 100):
            encoded = [(at + one, b"\0\x53\x75\xa0\x0d" + sent[at + one]) for one in range(100)]
            client.send(publish(1, *encoded))
        count = 0
        while count < MESSAGES:
            count += len(confirmed(await client.next_of(Key.PUBLISH_CONFIRM))[1])
        process = await asyncio.create_subprocess_exec(
            *found.command, HOST, str(alone.port), "orders", str(MESSAGES), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(120):
            output, _ = await process.communicate()
    assert output.decode().splitlines() == [line_of(sent, at) for at in range(0, MESSAGES, LINE)]


def line_of(sent: list[bytes], first: int) -> str:
    """Return what the program tells of so many messages: body, no message id, no annotation."""
    told = sha256()
    for offset in range(first, first + LINE):
        told.update(offset.to_bytes(8))
        for part in (sent[offset], b"", b""):
            told.update(len(part).to_bytes(4) + part)
    return f"{first} {first + LINE - 1} {LINE} {told.hexdigest()}"
