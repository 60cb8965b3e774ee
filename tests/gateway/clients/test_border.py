"""Stock clients read a stream through the gateway from its first message, over the border from archive to broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gateway.clients.border import Border, BorderStream, NotedBroker, border
from tests.gateway.clients.deliveries import Deliveries
from tests.gateway.clients.gateway_run import GatewayRun
from tests.gateway.clients.lines import LINE, expected_lines
from tests.gateway.clients.programs import (
    ClientRun,
    StockClient,
    find_go,
    find_java,
    find_javascript,
    find_python,
    find_rust,
)
from tests.support.broker import Broker
from tests.support.fixtures import do_without
from tests.support.releases import HOST_RELEASE, RABBITMQ_4_0

MILLION = 1_000_000
FEWER = 100_000
BEGUN_S = 120.0
READ_S = 240.0


@dataclass
class Scene:
    """What the tests of one broker share: the border, its two streams, and a gateway."""

    border: Border
    mixed: BorderStream
    plain: BorderStream
    gateway: GatewayRun

    def stream_for(self, client: StockClient) -> BorderStream:
        return self.mixed if client.sub_batches else self.plain


@pytest.fixture(scope="module")
def scene(any_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("border")
    release = any_broker.release
    mixed = BorderStream("border-mixed", MILLION if release == HOST_RELEASE else FEWER, with_sub_batches=True)
    plain = BorderStream("border-plain", MILLION if release == RABBITMQ_4_0 else FEWER, with_sub_batches=False)
    streams = [mixed, plain]
    with ThreadPoolExecutor(1) as meanwhile:
        # What the archive needs takes as long to start.
        publishing = meanwhile.submit(NotedBroker(any_broker).publish, streams)
        with border(any_broker, directory, "border-*") as made:
            publishing.result()
            made.make({stream.name: stream.archived_messages // 10 for stream in streams})
            log = directory / "gateway.log"
            with GatewayRun(made.stack.environment, any_broker.stream_port, log) as gateway:
                yield Scene(made, mixed, plain, gateway)


@pytest.fixture(scope="module")
def clients(any_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> list[StockClient]:
    """Every program that can be run with the broker: two clients ask for what RabbitMQ 3.10 does not know."""
    found = {"Java": find_java(tmp_path_factory.mktemp("classes")), "Go": find_go(), "Python": find_python()}
    if any_broker.release != HOST_RELEASE:
        found |= {"Rust": find_rust(), "JavaScript": find_javascript()}
    for language, client in found.items():
        if client is None:
            do_without(f"the stock client for {language}", "make stream-client gateway-clients")
    return [client for client in found.values() if client is not None]


def problems_of(runs: list[ClientRun], scene: Scene) -> list[str]:
    """Wait for programs, and say of each that reads something else than what the broker delivered what it was."""
    problems = []
    deadline = time.monotonic() + READ_S
    for run in runs:
        stream, language = scene.stream_for(run.client), run.client.language
        try:
            lines = run.finish(max(1.0, deadline - time.monotonic()))
        except AssertionError as err:
            problems.append(str(err))
            continue
        expected = expected_lines(stream.offsets, len(lines) * LINE, decoded=run.client.decoded)
        different = [(read, right) for read, right in zip(lines, expected, strict=True) if read != right]
        if different:
            read, right = different[0]
            problems.append(
                f"{language}: {len(different)} of {len(lines)} lines are wrong, at first {read} for {right}"
            )
    return problems


def test_stock_clients_read_the_brokers_own_deliveries(scene: Scene, clients: list[StockClient], tmp_path: Path):
    """Otherwise the next test would find the clients' differences. What is left of the stream is told from its end."""
    port = scene.border.broker.stream_port
    stream = BorderStream("direct", 2 * LINE, with_sub_batches=False)
    with scene.border.broker.connect() as connection:
        connection.create_stream(stream.name, max_segment_bytes=2_000_000)
    scene.border.publish_rest(stream)
    direct = Scene(scene.border, stream, stream, scene.gateway)
    with ExitStack() as running:
        runs = [
            running.enter_context(ClientRun(client, port, stream.name, stream.messages, tmp_path)) for client in clients
        ]
        assert problems_of(runs, direct) == []


def test_stock_clients_read_each_message_once_and_in_order(scene: Scene, clients: list[StockClient], tmp_path: Path):
    for stream in (scene.mixed, scene.plain):
        assert scene.border.first_offset(stream.name) > stream.delivered[0].chunk_id
    with ExitStack() as running:
        runs = []
        for client in clients:
            stream = scene.stream_for(client)
            run = ClientRun(client, scene.gateway.port, stream.name, stream.messages, tmp_path)
            runs.append(running.enter_context(run))
        for run in runs:
            run.wait_begun(BEGUN_S)
        for stream in (scene.mixed, scene.plain):
            scene.border.publish_rest(stream)
        problems = problems_of(runs, scene)
    assert problems == [], scene.gateway.log


@pytest.mark.parametrize("version", [1, 2])
def test_deliver_frames_are_the_brokers_byte_for_byte(scene: Scene, version: int):
    if version == 2 and scene.border.broker.release == HOST_RELEASE:
        pytest.skip("RabbitMQ 3.10 knows only version 1")
    for stream in (scene.mixed, scene.plain):
        with Deliveries(scene.gateway.port, stream.name, deliver_version=version) as deliveries:
            taken = deliveries.take(sum(chunk.records for chunk in stream.delivered))
        different = [(was, right) for was, right in zip(taken, stream.delivered, strict=False) if was != right]
        assert different[:1] == []
        assert len(taken) == len(stream.delivered)
        if version == 2:
            pairs = zip(deliveries.committed_ids, taken, strict=True)
            assert [(committed, chunk) for committed, chunk in pairs if committed < chunk.chunk_id] == []


def test_an_offset_within_the_archive_is_attached_where_the_broker_attached_it(scene: Scene):
    stream = scene.mixed
    for position in (1, len(stream.delivered) // 3, len(stream.delivered) // 2):
        chunk = stream.delivered[position]
        for offset in {chunk.chunk_id, chunk.next_offset - 1}:
            with Deliveries(scene.gateway.port, stream.name, offset=offset) as deliveries:
                assert deliveries.take(1) == [chunk]


def test_a_filter_leaves_out_nothing_that_the_broker_delivers(scene: Scene):
    if scene.border.broker.release == HOST_RELEASE:
        pytest.skip("RabbitMQ 3.10 has no filters")
    name, batches, batch = "border-filtered", 60, 20
    with scene.border.broker.connect() as connection:
        connection.create_stream(name, max_segment_bytes=2_000_000)
        for number in range(batches):
            connection.publish(name, [bytes(8000)] * batch, filter_value="ab"[number % 2])
    port = scene.border.broker.stream_port
    filtered = {"filter.0": "b", "match-unfiltered": "false"}
    with Deliveries(port, name) as deliveries:
        every = deliveries.take(batches * batch)
    with Deliveries(port, name, properties=filtered) as deliveries:
        matching = deliveries.take(batches // 2 * batch)
    assert len(matching) < len(every)
    scene.border.make({name: batch * 5})
    first = scene.border.first_offset(name)
    with Deliveries(scene.gateway.port, name, properties=filtered) as deliveries:
        taken = deliveries.take(1)
        while taken[-1].chunk_id < matching[-1].chunk_id:
            taken += deliveries.take(1)
    assert [chunk for chunk in every if chunk in taken] == taken
    assert [chunk for chunk in taken if chunk in matching] == matching
    # What the archive has not kept, the filters of its chunks, it may not leave out chunks by.
    assert [chunk for chunk in every if chunk.next_offset <= first] == [c for c in taken if c.next_offset <= first]
