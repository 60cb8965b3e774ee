"""A group at a real broker: a program and a command share a super stream, and the program goes on alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import coldstream
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.shard_changes import bound, first_map
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.shard_maps import ShardMapWriter
from coldstream.store.table import DynamoTable
from coldstream.units import now_ms
from tests.support.broker import Broker

PACKAGE = str(Path(coldstream.__path__[0]).parent)
NAME = "grouped"
PARTITIONS = [f"{NAME}-{at}" for at in range(4)]
LEASE_S = 6.0


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}) as running:
        yield running


def declare(stack: EmulatedStack, broker: Broker) -> DynamoTable:
    with broker.connect() as streams:
        for partition in PARTITIONS:
            streams.create_stream(partition, max_segment_bytes=1_000_000)
    table = DynamoTable(stack.environment["COLDSTREAM_TABLE"])
    names = [Partition(0, partition) for partition in PARTITIONS]
    found = first_map(
        "/", NAME, ShardKind.SUPER_STREAM, ShardHash.MURMUR3, partitions=names, definition="{}", at=now_ms()
    )
    writer = ShardMapWriter(table, ControlObjects(MemoryObjects(), Keys()))
    writer.write(found, ShardEventKind.DECLARE, now_ms())
    writer.write(bound(found, now_ms()), ShardEventKind.BIND, now_ms())
    return table


def publish(broker: Broker, written: dict[str, int], rounds: int) -> None:
    with broker.connect() as streams:
        for partition in PARTITIONS:
            bodies = [f"{partition}/{written[partition] + at}".encode() for at in range(rounds)]
            streams.publish(partition, bodies)
            written[partition] += rounds


def read_in_a_thread(consumer: coldstream.BlockingConsumer, bodies: list[str]) -> threading.Thread:
    def read() -> None:
        with suppress(coldstream.ClosedError):
            for delivery in consumer.deliveries():
                bodies.append(delivery.message.raw.decode())
                consumer.store_offset(delivery)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def all_of(written: dict[str, int]) -> set[str]:
    return {f"{partition}/{number}" for partition, count in written.items() for number in range(count)}


def test_a_program_and_a_command_share_a_super_stream_and_the_program_goes_on_alone(
    stack: EmulatedStack, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    table = declare(stack, broker)
    written = dict.fromkeys(PARTITIONS, 0)
    publish(broker, written, 20)
    environment = {
        **stack.environment,
        "PYTHONPATH": PACKAGE,
        "PATH": os.environ["PATH"],
        "COLDSTREAM_BROKER": broker.stream_uri,
    }
    command = [sys.executable, "-m", "coldstream.cli.main", "read", NAME, "--follow", "--group", "billing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as reading:
        try:
            assert reading.stdout is not None
            by_command = [json.loads(reading.stdout.readline())["raw"] for _ in range(80)]
            assert set(by_command) == all_of(written)
            reading.send_signal(signal.SIGINT)  # it leaves, and what it wrote is committed
            _, errors = reading.communicate(timeout=60)
            assert reading.returncode == 130, errors
        finally:
            reading.kill()
    group = coldstream.ConsumerGroup("billing", table, lease_s=LEASE_S)
    options = {"resolver": stack.resolver_url, "broker": broker.stream_uri, "group": group}
    by_program: list[str] = []
    with coldstream.BlockingConsumer(NAME, **options) as first:  # type: ignore[arg-type]
        reading_first = read_in_a_thread(first, by_program)
        with coldstream.BlockingConsumer(NAME, **options) as second:  # type: ignore[arg-type]
            reading_second = read_in_a_thread(second, by_program)
            until(lambda: len(first.assignment) == len(second.assignment) == 2)
            publish(broker, written, 20)
            until(lambda: {*by_command, *by_program} == all_of(written))
            second.close()
            reading_second.join()
        until(lambda: len(first.assignment) == 4)
        publish(broker, written, 5)
        until(lambda: {*by_command, *by_program} == all_of(written))
        first.close()
        reading_first.join()
    for partition in PARTITIONS:
        mine = [body for body in by_program if body.startswith(f"{partition}/")]
        assert mine == sorted(mine, key=lambda body: int(body.partition("/")[2]))
        # Committed one by one, so that nothing came twice.
        assert len(mine) == len(set(mine))
