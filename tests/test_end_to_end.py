"""From a real broker's segments to the messages that a reader gets, through every part there is."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rstream import CompressionType

from coldstream.local.stack import EmulatedStack
from coldstream.manifest.entry import Encoding
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset
from coldstream.manifest.stream import Incarnation
from coldstream.read.reader import Reader
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.support.broker import Broker
from tests.support.streams import SubBatch

PACKAGES = Path(__file__).parents[1] / "layers/coldstream/python"
VHOST = "vhost/№1"
STREAM = "заказы ?&#%2F+,"
MESSAGES = 4000


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    parameters = {"FragmentBytes": "65536", "Encoding": "zstd-seekable", "Prefix": "tests/archive/"}
    with EmulatedStack(inherited={}, parameters=parameters) as running:
        yield running


@pytest.fixture(scope="module")
def published(broker: Broker) -> list[bytes]:
    """Messages of a stream whose retention has deleted the oldest by the time that they are all published."""
    rng = random.Random(4)
    messages = [b"%d:" % number + rng.randbytes(rng.choice([0, 30, 300, 3000])) for number in range(MESSAGES)]
    broker.add_vhost(VHOST)
    with broker.connect(VHOST) as streams:
        streams.create_stream(STREAM, max_segment_bytes=200_000)
        entries: list[bytes | SubBatch] = []
        at = 0
        while at < MESSAGES:
            size = rng.randrange(1, 50) if rng.random() < 0.3 else 1
            part = messages[at : at + size]
            kind = rng.choice(list(CompressionType))
            entries.append(SubBatch(part, kind) if size > 1 else part[0])
            at += size
        for start in range(0, len(entries), 50):
            streams.publish(STREAM, entries[start : start + 50])
    return messages


@pytest.fixture(scope="module")
def directory(broker: Broker, published: list[bytes]) -> Path:
    return broker.stream_directory(STREAM, VHOST)


@pytest.fixture(scope="module")
def tail(stack: EmulatedStack, directory: Path) -> int:
    """The offset up to which the broker has rolled, and the archive has everything."""
    segments = sorted(directory.glob("*.segment"))
    assert len(segments) > 5
    first = announce(stack, directory)
    assert len(first["announced"]) == len(segments) - 1
    return int(segments[-1].stem)


def coldstream(stack: EmulatedStack, *arguments: str | Path) -> bytes:
    """Run the command line as its user does."""
    command = [sys.executable, "-m", "coldstream.cli.main", *map(str, arguments)]
    environment = os.environ | stack.environment | {"PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def announce(stack: EmulatedStack, directory: Path) -> dict[str, list[object]]:
    names = ("--vhost", VHOST, "--name", STREAM)
    return json.loads(coldstream(stack, "announce", directory, *names, "--wait", "--output", "json"))


def test_every_message_comes_back_once_and_in_order(stack, published, tail):
    with Reader(stack.resolver_url, VHOST, STREAM, FIRST) as reader:
        read = [(message.offset, message.raw) for message in reader.messages()]
        assert reader.tail == tail
    assert read == list(enumerate(published[:tail]))


def test_all_fragments_have_the_encoding_that_the_template_was_given(stack, directory, tail, monkeypatch):
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    table = DynamoTable(stack.environment["COLDSTREAM_TABLE"])
    entries = table.log_from_offset(Incarnation(directory.name), Offset(0), 1000).entries
    assert entries[-1].next_offset == tail
    assert {entry.encoding for entry in entries} == {Encoding.ZSTD_SEEKABLE}


def test_announcing_again_archives_nothing_again(stack, directory, tail):
    again = announce(stack, directory)
    assert again["announced"] == []
    assert again["archived"] == len(list(directory.glob("*.segment"))) - 1
    assert stack.dead_letters() == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_starts_exactly_at_its_offset(stack, published, tail, seed):
    offset = random.Random(seed).randrange(tail)
    with Reader(stack.resolver_url, VHOST, STREAM, AtOffset(Offset(offset))) as reader:
        first = next(iter(reader.messages()))
    assert (first.offset, first.raw) == (offset, published[offset])


def test_past_the_archive_a_reader_is_told_where_the_broker_goes_on(stack, tail):
    for spec in (NEXT, AtOffset(Offset(tail)), AtOffset(Offset(tail + 1000))):
        with Reader(stack.resolver_url, VHOST, STREAM, spec) as reader:
            assert list(reader.messages()) == []
            assert reader.tail == tail


def test_last_is_the_last_chunk_of_messages(stack, published, tail):
    with Reader(stack.resolver_url, VHOST, STREAM, LAST) as reader:
        last = list(reader.messages())
    assert [(message.offset, message.raw) for message in last] == list(enumerate(published[:tail]))[-len(last) :]
    assert last


def test_the_command_line_reads_what_was_published(stack, published, tail):
    read = coldstream(stack, "read", STREAM, "--vhost", VHOST, "--from", str(tail - 40))
    assert [json.loads(line)["offset"] for line in read.splitlines()] == list(range(tail - 40, tail))


def test_a_description_adds_up(stack, tail):
    description = json.loads(coldstream(stack, "describe", STREAM, "--vhost", VHOST, "--output", "json"))
    assert description["first_offset"] == 0
    assert description["next_offset"] == tail
    assert description["messages"] == tail
    assert description["gaps"] == []
