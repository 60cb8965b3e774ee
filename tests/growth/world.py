"""A super stream that is published to by stock producers, archived, read in the order of keys, and changed meanwhile.

Producers, `coldstream shards apply`, the agent and the reader are processes of their own, as they are with users.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from coldstream.local.stack import EmulatedStack
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.store.shard_maps import find_map
from coldstream.store.table import DynamoTable
from tests.growth.reading import Line, lines_of
from tests.support.agent import PACKAGES, AgentProcess
from tests.support.broker import Broker
from tests.support.releases import HOST_RELEASE, Release
from tests.support.server import ROOT
from tests.support.shard_brokers import PLUGINS, amqp_uri, shard_broker
from tests.support.stock_producer import StockProducer, compile_producer

NAME = "orders"
SEGMENT_BYTES = 100_000
MAX_LENGTH_BYTES = 300_000
PADDING_BYTES = 1_000
BURST = 3
"""Messages of each key that are asked for at once: of any one partition less than a segment."""

MAX_UNCONFIRMED = 200
TURN_S = 0.05
SETTLE_S = 180.0
KEYS = [f"key-{number}" for number in range(16)]


class GrowthWorld:
    """A context manager. All methods are for the thread that entered it, which the broker ends with."""

    def __init__(
        self, directory: Path, seed: int, *, release: Release = HOST_RELEASE, say: Callable[[str], None] = print
    ) -> None:
        self._directory = directory
        self._release = release
        self._say = say
        self._exit = contextlib.ExitStack()
        self._reader: subprocess.Popen[bytes] | None = None
        self.random = random.Random(seed)
        self.log = directory / "read"
        self.kills = {"producer": 0, "apply": 0, "reader": 0}
        self.told: list[str] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            self._start(opening)
            self._exit = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, error, trace)

    def _start(self, opening: contextlib.ExitStack) -> None:
        classes = compile_producer(self._directory / "classes")
        self.stack = opening.enter_context(
            EmulatedStack(
                inherited={},
                parameters={"FragmentBytes": "65536"},
                log=opening.enter_context((self._directory / "functions.log").open("w")),
            )
        )
        patch = opening.enter_context(pytest.MonkeyPatch.context())
        for name, value in self.stack.environment.items():
            patch.setenv(name, value)
        self.table = DynamoTable(self.stack.environment["COLDSTREAM_TABLE"])
        self.broker = opening.enter_context(Broker(release=self._release, management=True, plugins=PLUGINS))
        self.shards = shard_broker(self.broker)
        self.agent = AgentProcess(
            self.stack.environment,
            self._directory / "agent",
            self.broker.stream_uri,
            *("--data", self.broker.data_directory, "--max-lag", "3s"),
        )
        self.change(2)
        opening.enter_context(self.agent)
        self.agent.wait_ready()
        self.producers = [
            opening.enter_context(
                StockProducer(
                    classes,
                    self.broker.stream_uri,
                    super_stream=NAME,
                    name=f"writer-{number}",
                    keys=keys,
                    padding=PADDING_BYTES,
                )
            )
            for number, keys in enumerate((KEYS[::2], KEYS[1::2]))
        ]
        opening.callback(self._end_reader)
        self.start_reader()

    @property
    def map(self) -> ShardMap:
        """The map, as it is in the table now."""
        found = find_map(self.table, "/", NAME)
        assert found is not None
        return found

    @property
    def confirmed(self) -> dict[str, set[int]]:
        """The numbers of each key that are confirmed."""
        return {key: numbers for producer in self.producers for key, numbers in producer.confirmed.items()}

    @property
    def published(self) -> int:
        """How many messages are confirmed."""
        return sum(map(len, self.confirmed.values()))

    def run(self, done: Callable[[], bool], what: str, *, timeout_s: float = SETTLE_S) -> None:
        """Publish until something is done. Raises AssertionError if it is not in time."""
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, f"{what}\n{self.describe()}"
            self.tend()
            time.sleep(TURN_S)

    def publish(self, messages: int) -> None:
        """Publish until so many messages more are confirmed."""
        wanted = self.published + messages
        self.run(lambda: self.published >= wanted, f"{messages} messages are not published")

    def tend(self) -> None:
        """Have each producer go on if it may. Raises AssertionError if anything ended by itself."""
        for producer in self.producers:
            producer.check()
        assert self._reader is None or self._reader.poll() is None, (self._directory / "reader.log").read_text()[-3000:]
        assert self.agent.is_running, self.agent.log.read_text()[-3000:]
        # The broker forgets by size, so what is not archived yet stays only if producers wait for the agent.
        if self._is_archived_but_the_newest():
            for producer in self.producers:
                if producer.unconfirmed < MAX_UNCONFIRMED:
                    producer.publish(BURST)

    def apply(self, shards: int, *options: str) -> subprocess.Popen[str]:
        """Start `coldstream shards apply` for a number of partitions."""
        file = self._directory / "shards.toml"
        file.write_text(
            f'[[shards]]\nname = "{NAME}"\nkind = "super-stream"\nshards = {shards}\n'
            f"max_segment_bytes = {SEGMENT_BYTES}\nmax_length_bytes = {MAX_LENGTH_BYTES}\n"
        )
        addresses = ("--management", self.broker.management_url, "--amqp-broker", amqp_uri(self.broker))
        return subprocess.Popen(
            [sys.executable, "-m", "coldstream.cli.main", "shards", "apply", str(file), *addresses, *options],
            env=self._environment() | {"COLDSTREAM_BROKER": self.broker.stream_uri},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def change(self, shards: int, *options: str, meanwhile: Callable[[Callable[[], bool]], None] | None = None) -> str:
        """Run `coldstream shards apply` to its end, publishing if told so; return what it said."""
        with self.apply(shards, *options) as process:
            try:
                if meanwhile is not None:
                    meanwhile(lambda: process.poll() is not None)
                told, _ = process.communicate(timeout=SETTLE_S)
            finally:
                process.kill()
        self._say(told.strip())
        self.told.append(told)
        assert process.returncode == 0, f"{told}\n{self.describe()}"
        return told

    def change_while_publishing(self, shards: int, *options: str) -> str:
        """Run `coldstream shards apply` to its end while producers publish."""
        return self.change(
            shards, *options, meanwhile=lambda done: self.run(done, f"the change to {shards} does not end")
        )

    def kill_apply(self, shards: int, after_s: float) -> None:
        """Start `coldstream shards apply`, and kill it unless it ends before."""
        with self.apply(shards) as process:
            until = time.monotonic() + after_s
            self.run(lambda: process.poll() is not None or time.monotonic() > until, "nothing")
            process.kill()
            process.communicate()
        self.kills["apply"] += 1

    def kill_producer(self, number: int) -> None:
        """Kill a producer while it publishes, and start it again."""
        self.producers[number].publish(BURST)
        self.producers[number].kill()
        self.producers[number].start()
        self.kills["producer"] += 1

    def kill_reader(self) -> None:
        """Kill the reader, and start it again."""
        assert self._reader is not None
        self._reader.kill()
        self._reader.wait(10)
        self.kills["reader"] += 1
        self.start_reader()

    def start_reader(self, log: Path | None = None) -> None:
        """Start the reader, which goes on where its log ends."""
        command = [sys.executable, "-m", "tests.growth.reading", str(log or self.log), NAME]
        with (self._directory / "reader.log").open("ab") as errors:
            self._reader = subprocess.Popen(
                [*command, self.stack.resolver_url, self.broker.stream_uri],
                cwd=ROOT,
                env=self._environment(),
                stdout=errors,
                stderr=errors,
            )

    def finish(self) -> list[Line]:
        """Have everything confirmed and read; return what was read, and by a second reader from the beginning on."""
        for producer in self.producers:
            producer.finish()
        self._wait_read(self.log)
        self._end_reader()
        again = self._directory / "read again"
        self.start_reader(again)
        self._wait_read(again)
        self._end_reader()
        lines = lines_of(self.log)
        assert by_key(lines_of(again)) == by_key(lines)
        return lines

    def forgotten(self) -> float:
        """Return how much of what was published the broker has no more, as a part of all."""
        found = self.map
        there = {one.name for one in found.partitions if one.deleted_at is None}
        ends = self.ends()
        directories = self.broker.data_directory.glob(f"__{NAME}-*")
        first = {one.name[2:].rpartition("_")[0]: _segments(one)[0] for one in directories}
        kept = sum(ends[one.number] - first[one.name] for one in found.partitions if one.name in there)
        return 1 - kept / sum(ends.values())

    def ends(self) -> Mapping[int, int]:
        """Return the end of each partition, by number; of one that is deleted its seal."""
        found = self.map
        seals = {edge.parent: edge.seal or 0 for edge in found.lineage}
        return {
            one.number: self.shards.end(one.name) if one.deleted_at is None else seals[one.number]
            for one in found.partitions
        }

    def describe(self) -> str:
        """Say how things are, for who looks for what went wrong."""
        read = lines_of(self.log)
        return "\n".join(
            (
                f"published {self.published}, read {len(read)} up to {read[-1].position if read else 'nothing'}",
                f"map: {self.map}, {self.map.newest}, unsealed {self.map.unsealed}",
                f"ends: {self.ends()}; killed: {self.kills}; told last: {self.told[-1:]}",
                f"agent: {self.agent.status()}",
            )
        )

    def _wait_read(self, log: Path) -> None:
        ends = self.ends()
        deadline = time.monotonic() + SETTLE_S
        while not _has_read(lines_of(log), ends):
            assert self._reader is not None
            problem = (self._directory / "reader.log").read_text()[-3000:]
            assert self._reader.poll() is None, problem
            assert time.monotonic() < deadline, f"{log} is not read to the end\n{problem}\n{self.describe()}"
            time.sleep(0.2)

    def _end_reader(self) -> None:
        if self._reader is not None:
            self._reader.kill()
            self._reader.wait(10)
            self._reader = None

    def _is_archived_but_the_newest(self) -> bool:
        status = self.agent.status()
        archived = {str(one.incarnation): one.archived_to or 0 for one in status.streams} if status is not None else {}
        directories = self.broker.data_directory.glob(f"__{NAME}-*")
        return all(archived.get(one.name, 0) >= found[-1] for one in directories if (found := _segments(one)))

    def _environment(self) -> dict[str, str]:
        return os.environ | self.stack.environment | {"PYTHONPATH": f"{PACKAGES}{os.pathsep}{ROOT}"}


def _segments(directory: Path) -> list[int]:
    """Return the first offsets of a stream's segments."""
    return sorted(int(path.stem) for path in directory.glob("*.segment"))


def _has_read(lines: list[Line], ends: Mapping[int, int]) -> bool:
    if not lines:
        return False
    position = ShardPosition.from_text(lines[-1].position)
    return all(position.offset(number) >= end for number, end in ends.items())


def by_key(lines: Iterable[Line]) -> dict[str, list[tuple[str, int]]]:
    """Return the messages of each key, in their order: which instance published which number."""
    keys: dict[str, list[tuple[str, int]]] = {}
    for line in lines:
        keys.setdefault(line.key, []).append((line.instance, line.number))
    return keys
