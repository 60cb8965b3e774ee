"""`coldstream gateway` as operators run it, with a real broker, a real agent and stock clients."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rstream import (
    AMQPMessage,
    Consumer,
    ConsumerOffsetSpecification,
    MessageContext,
    OffsetType,
    Producer,
    amqp_decoder,
)
from rstream.exceptions import AuthenticationFailure

from coldstream.local.stack import EmulatedStack
from coldstream.read.client import ResolverClient
from tests.support.agent import AgentProcess
from tests.support.broker import Broker, find_rabbitmq
from tests.support.fixtures import do_without
from tests.support.gateway_program import HOST, PACKAGES, GatewayProgram

pytestmark = pytest.mark.server
MESSAGES = 40_000
ROUND_MESSAGES = 4_000
WITHIN_S = 120.0
STREAM = "orders"  # rstream asks for names of other letters wrongly


def settled(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack() as running:
        yield running


def body_of(offset: int) -> bytes:
    return b"message %d " % offset + b"x" * (offset % 300)


@dataclass
class Archived:
    """A broker whose stream begins at `kept`, and what was before in the archive."""

    broker: Broker
    environment: dict[str, str]
    kept: int

    @property
    def place(self) -> str:
        return f"{HOST}:{self.broker.stream_port}"


@pytest.fixture(scope="module")
def archived(stack: EmulatedStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    state = tmp_path_factory.mktemp("agent")
    with Broker(management=True) as broker:
        beside = ("--data", broker.data_directory, "--management", broker.management_url)
        with (
            AgentProcess(stack.environment, state / "agent", broker.stream_uri, *beside) as agent,
            broker.connect() as streams,
        ):
            agent.wait_ready()
            streams.create_stream(STREAM, max_segment_bytes=500_000, max_length_bytes=1_000_000)
            directory = broker.stream_directory(STREAM)
            with ResolverClient(stack.resolver_url) as client:

                def archived_to() -> int:
                    is_there = any(one.name == STREAM for one in client.streams().streams)
                    return (client.describe("/", STREAM).head.next_offset or 0) if is_there else 0

                def is_followed() -> bool:
                    status = agent.status()
                    return status is not None and any(one.state == "following" for one in status.streams)

                for first in range(0, MESSAGES, ROUND_MESSAGES):
                    offsets = range(first, first + ROUND_MESSAGES)
                    streams.publish(STREAM, [bytes(AMQPMessage(body=body_of(offset))) for offset in offsets])
                    settled(is_followed)  # else retention may take the first segment before the agent has seen it
                    # A round is smaller than what retention keeps: what goes in it was archived after the one before.
                    rolled_until = max(int(path.stem) for path in directory.glob("*.segment"))
                    settled(lambda rolled_until=rolled_until: archived_to() >= rolled_until)
            kept = min(int(path.stem) for path in directory.glob("*.segment"))
            assert kept > 0
        yield Archived(broker, dict(stack.environment), kept)


@dataclass
class Reading:
    """What a client was given: each message once, in order, as it was published."""

    first: int | None = None
    next: int = 0
    wrong: list[int] = field(default_factory=list)


async def read(
    port: int, stream: str, end: int, *, user: str = "guest", password: str = "guest", **options: Any
) -> Reading:
    """Read a stream from `first` up to an offset, by a stock client."""
    found = Reading()
    is_over = asyncio.Event()

    def take(message: AMQPMessage, context: MessageContext) -> None:
        if found.first is None:
            found.first = found.next = context.offset
        if context.offset != found.next or bytes(message.body) != body_of(context.offset):  # type: ignore[arg-type]
            found.wrong.append(context.offset)
        found.next = context.offset + 1
        if found.next >= end:
            is_over.set()

    async with closing_what_rstream_opens():
        consumer = Consumer(HOST, port, username=user, password=password, **options)
        await consumer.start()
        try:
            first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
            await consumer.subscribe(stream, take, decoder=amqp_decoder, offset_specification=first)
            async with asyncio.timeout(WITHIN_S):
                await is_over.wait()
        finally:
            await consumer.close()
    return found


@asynccontextmanager
async def closing_what_rstream_opens() -> AsyncIterator[None]:
    """Close each connection: rstream forgets those whose other end was the first to go."""
    open_connection, writers = asyncio.open_connection, []

    async def noted(*arguments: Any, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await open_connection(*arguments, **options)
        writers.append(writer)
        return reader, writer

    with mock.patch.object(asyncio, "open_connection", noted):
        try:
            yield
        finally:
            for writer in writers:
                writer.transport.abort()
            for _ in range(3):  # turns of the loop, in which sockets are closed
                await asyncio.sleep(0)


@pytest.mark.timeout(300)
async def test_a_stock_client_reads_everything_and_operators_see_it(archived: Archived, tmp_path: Path) -> None:
    with GatewayProgram(
        archived.environment, tmp_path / "log", "--broker", archived.place, "--processes", 2
    ) as gateway:
        settled(lambda: gateway.ask("/healthz")[0] == 200)
        straight = await read(archived.broker.stream_port, STREAM, MESSAGES)
        assert (straight.first, straight.wrong) == (archived.kept, [])
        for _ in range(3):
            through = await read(gateway.port, STREAM, MESSAGES)
            assert (through.first, through.next, through.wrong) == (0, MESSAGES, [])
        settled(lambda: gateway.metric("coldstream_gateway_takeovers_total") == 3)
        settled(lambda: gateway.metric("coldstream_gateway_handovers_total") == 3)
        settled(lambda: gateway.metric("coldstream_gateway_connections") == 0)
        assert gateway.metric("coldstream_gateway_archive_bytes_total") > 3 * archived.kept * len(body_of(0))
        assert gateway.metric("coldstream_gateway_bytes_to_clients_total") > gateway.metric(
            "coldstream_gateway_archive_bytes_total"
        )
        status = gateway.status()
        assert (status["ready"], status["mode"], len(status["processes"])) == (True, "proxy", 2)
        assert status["totals"]["memory_budget_bytes"] == 256 << 20
        told = [line for line in gateway.lines() if line.get("connection")]
        assert {line["user"] for line in told} == {"guest"}
        assert all(line["child"] in {0, 1} for line in told)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0


@pytest.mark.timeout(300)
async def test_at_sigterm_a_client_is_told_to_go_and_the_gateway_ends(archived: Archived, tmp_path: Path) -> None:
    lost = asyncio.Event()
    with GatewayProgram(
        archived.environment, tmp_path / "log", "--broker", archived.place, "--processes", 1, "--drain", "1h"
    ) as gateway:
        async with closing_what_rstream_opens():
            consumer = Consumer(
                HOST, gateway.port, username="guest", password="guest", on_close_handler=lambda _: lost.set()
            )
            await consumer.start()
            settled(lambda: gateway.metric("coldstream_gateway_connections") == 1)
            gateway.signal(signal.SIGTERM)
            # The client answers the Close, and so the gateway need not wait for the end of --drain.
            assert await asyncio.to_thread(gateway.wait) == 0
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, gateway.port), 1)
            (ended,) = [line for line in gateway.lines() if line.get("reason") == "the gateway shuts down"]
            assert ended["user"] == "guest"
            await consumer.close()


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        do_without("openssl", "on Debian: apt-get install openssl")
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    return certificate, key


def shown(port: int) -> bytes:
    """Return the certificate that a client is shown."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((HOST, port), WITHIN_S) as plain, trusting.wrap_socket(plain) as link:
        found = link.getpeercert(binary_form=True)
        assert found is not None
        return found


@pytest.mark.timeout(300)
async def test_clients_may_use_tls_and_sighup_renews_the_certificate(archived: Archived, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "first")
    options = ("--broker", archived.place, "--certificate", certificate, "--private-key", key, "--processes", 1)
    with GatewayProgram(archived.environment, tmp_path / "log", *options) as gateway:
        trusting = ssl.create_default_context(cafile=str(certificate))
        through = await read(gateway.port, STREAM, MESSAGES, ssl_context=trusting)
        assert (through.first, through.next, through.wrong) == (0, MESSAGES, [])
        first = shown(gateway.port)
        key.write_text("no key")
        gateway.signal(signal.SIGHUP)
        settled(lambda: "the certificate cannot be read again" in gateway.log.read_text())
        assert shown(gateway.port) == first
        for source, target in zip(make_certificate(tmp_path, "second"), (certificate, key), strict=True):
            source.replace(target)
        gateway.signal(signal.SIGHUP)
        settled(lambda: "the certificate was read again" in gateway.log.read_text())
        assert shown(gateway.port) == ssl.PEM_cert_to_DER_cert(certificate.read_text()) != first


def test_without_a_broker_it_is_not_ready_but_lives(stack: EmulatedStack, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        nobody = f"{HOST}:{server.getsockname()[1]}"
    with GatewayProgram(stack.environment, tmp_path / "log", "--broker", nobody, "--processes", 1) as gateway:
        settled(lambda: "Connection refused" in gateway.ask("/healthz")[1])
        assert gateway.ask("/healthz")[0] == 503
        assert gateway.ask("/livez")[0] == 200
        assert gateway.metric("coldstream_gateway_broker_up") == 0
        assert gateway.metric("coldstream_gateway_ready") == 0
        # A client is let in by nobody, and is told so by the end of its connection.
        with socket.create_connection((HOST, gateway.port), WITHIN_S) as client:
            client.settimeout(WITHIN_S)
            assert client.recv(1) == b""
        settled(lambda: gateway.metric("coldstream_gateway_broker_failures_total") == 1)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0


async def produce(port: int, stream: str, count: int, user: str, password: str) -> None:
    async with closing_what_rstream_opens(), Producer(HOST, port, username=user, password=password) as producer:
        await producer.create_stream(stream)
        await producer.send_batch(stream, [AMQPMessage(body=body_of(offset)) for offset in range(count)])


@contextmanager
def users_file(directory: Path) -> Iterator[Path]:
    """Have a file with a user whose name is ada."""
    command = [sys.executable, "-m", "coldstream.cli.main", "gateway", "hash-password", "ada"]
    done = subprocess.run(
        command, input=b"geheim\n", capture_output=True, check=True, env={"PYTHONPATH": str(PACKAGES)}
    )
    path = directory / "users"
    path.write_bytes(done.stdout)
    yield path


async def test_alone_it_takes_messages_and_serves_them_to_its_own_users(stack: EmulatedStack, tmp_path: Path) -> None:
    count = 2_000
    with users_file(tmp_path) as users:
        options = ("--archive-only", "--users", users, "--processes", 1)
        with GatewayProgram(stack.environment, tmp_path / "first.log", *options, "--create") as gateway:
            settled(lambda: gateway.ask("/healthz")[0] == 200)
            assert gateway.status()["mode"] == "archive-only"
            with pytest.raises(AuthenticationFailure):
                await produce(gateway.port, "notes", 1, "ada", "wrong")
            await produce(gateway.port, "notes", count, "ada", "geheim")
            found = await read(gateway.port, "notes", count, user="ada", password="geheim")
            assert (found.first, found.next, found.wrong) == (0, count, [])
            gateway.signal(signal.SIGTERM)
            assert gateway.wait() == 0
        # It keeps nothing: another one, anywhere, has it all.
        with GatewayProgram(stack.environment, tmp_path / "second.log", *options) as gateway:
            found = await read(gateway.port, "notes", count, user="ada", password="geheim")
            assert (found.first, found.next, found.wrong) == (0, count, [])
            settled(lambda: gateway.metric("coldstream_gateway_archive_bytes_total") > count * len(body_of(0)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--archive-only", "--users", "/no/such/file"), "--users: /no/such/file: "),
        (("--certificate", "/no/such/file", "--private-key", "/no/such/key"), "--certificate: /no/such/file"),
        (("--broker-tls", "--broker-ca", "/no/such/file"), "--broker-ca: /no/such/file"),
    ],
)
def test_a_file_that_is_not_there_ends_it_with_2_and_one_line(
    stack: EmulatedStack, options: tuple[str, ...], said: str
) -> None:
    command = [sys.executable, "-m", "coldstream.cli.main", "gateway", "--listen", f"{HOST}:0", "--admin", "-"]
    environment = {**stack.environment, "PYTHONPATH": str(PACKAGES)}
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    *log, last = done.stderr.splitlines()
    assert last.startswith(f"coldstream: {said}")
    assert all(json.loads(line) for line in log)
