"""The command line, run in this process, and one local stack with an archive to ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from coldstream.cli.main import app
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.writer import SegmentWriter
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.stream import stream_from_directory
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import TimestampMs
from tests.support.small_fragments import SmallFragments

START = 1_763_700_000_000
CHUNK_MESSAGES = 10
CHUNK_MS = 1000
ROOT = Path(__file__).parents[2]

ORDERS = "__orders_1763700000000000000"
TORN = "__torn_1763700000000000001"


@dataclass(frozen=True)
class Result:
    """What a command ended with."""

    code: int | str | None
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Cli(Protocol):
    def __call__(self, *arguments: str | Path) -> Result: ...


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Run the command line in this process."""

    def run(*arguments: str | Path) -> Result:
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as done:
            app([str(argument) for argument in arguments], prog_name="coldstream")
        out, err = capsysbinary.readouterr()
        return Result(done.value.code, out, err.decode())

    return run


def body_of(offset: int) -> str:
    """Make the message at an offset: text of a length of its own."""
    return f"message {offset} " + "é" * (offset % 50)


def amqp(body: bytes) -> bytes:
    """Make an AMQP 1.0 message of one data section."""
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body


def write_segments(directory: Path, *, chunks: int = 200, max_segment_bytes: int = 40_000) -> list[int]:
    """Write a stream of one message an offset; return its segments' first offsets."""
    directory.mkdir(parents=True)
    with SegmentWriter(directory, max_segment_bytes=max_segment_bytes) as writer:
        for number in range(chunks):
            first = writer.next_offset
            entries = [amqp(body_of(offset).encode()) for offset in range(first, first + CHUNK_MESSAGES)]
            writer.write(entries, timestamp=TimestampMs(START + number * CHUNK_MS))
    return sorted(int(path.stem) for path in directory.glob("*.segment"))


@dataclass(frozen=True)
class Archive:
    """A running local stack, and the command line's environment with it.

    Archived are `orders`, whose segments begin at `borders` and are archived up to the last of them, and `torn`, which
    lacks the offsets of `gap`. Their directories are in `node`.
    """

    stack: EmulatedStack
    node: Path
    borders: list[int]
    gap: tuple[int, int]

    @property
    def tail(self) -> int:
        return self.borders[-1]


@contextmanager
def environment_of(stack: EmulatedStack) -> Iterator[None]:
    """Be in the environment that `coldstream up` prints."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "COLDSTREAM_PREFIX"):
            patch.delenv(name, raising=False)
        for name, value in stack.environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def archived(
    table_name: str,
    dynamo_table: DynamoTable,
    s3_objects: S3Objects,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> SmallFragments:
    """An archive of the emulated AWS, named by the environment."""
    small = SmallFragments(dynamo_table, s3_objects, tmp_path)
    for name, value in small.variables(table_name).items():
        monkeypatch.setenv(name, value)
    return small


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """A local stack of the real functions, with a prefix, and fragments as small as they may be."""
    parameters = {"FragmentBytes": "65536", "Prefix": "some/prefix/"}
    node = tmp_path_factory.mktemp("node")
    borders = write_segments(node / ORDERS, chunks=300, max_segment_bytes=100_000)
    first, following = write_segments(node / TORN)[1:3]
    # A segment without a chunk is never announced, so the archive lacks this one.
    (node / TORN / f"{first:020}.segment").write_bytes(SEGMENT_HEADER)
    with EmulatedStack(template=ROOT / "template.yaml", parameters=parameters, inherited={}) as stack:
        with environment_of(stack):
            announcer = Announcer.from_environment()
            for incarnation in (ORDERS, TORN):
                segments = find_rolled(node / incarnation)
                announcer.announce(stream_from_directory(incarnation), segments, lambda _: None)
            stack.wait_idle(60)
        yield Archive(stack, node, borders, (first, following))


@pytest.fixture
def archive(running: Archive) -> Iterator[Archive]:
    """The archive, and its environment."""
    with environment_of(running.stack):
        yield running
