"""Everything that a chaos run needs: a broker, an agent, the emulated AWS behind a proxy that fails, and the functions.

The parts are processes of their own, but for the proxy, the publisher and the consumers, which are threads of this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import coldstream
from coldstream.local.child_process import ChildProcess
from coldstream.local.environment import client, process_environment
from coldstream.local.stack import EmulatedStack
from tests.chaos.messages import STREAM
from tests.chaos.publisher import Publisher
from tests.chaos.readers import Readers, Start
from tests.chaos.schedule import AGENT_KEY, Action, Step
from tests.support.agent import AgentProcess
from tests.support.broker import Broker
from tests.support.faults import Faults, FaultyAws

T = TypeVar("T")

MESSAGES_PER_S = 120
SEGMENT_BYTES = 150_000
MAX_LENGTH_BYTES = 1_000_000
FRAGMENT_BYTES = 65_536
SETTLED_S = 1.0
"""After its first stream: a broker killed sooner forgets it."""

REDRIVE_EVERY_S = 2.0


class World:
    """A context manager. All methods are for the thread that entered it, which the broker ends with."""

    def __init__(self, seed: int, directory: Path, *options: str) -> None:
        self._seed = seed
        self._directory = directory
        self._options = options
        self._exit = contextlib.ExitStack()
        self._agent_is_up = True
        self._broker_is_starting = False
        self._redriven_at = 0.0
        self._simple: dict[Action, Callable[[], None]] = {
            Action.AGENT_KILL: lambda: self._end_agent(AgentProcess.kill),
            Action.AGENT_STOP: lambda: self._end_agent(AgentProcess.stop),
            Action.AGENT_START: self._start_agent,
            Action.BROKER_KILL: lambda: self._end_broker(Broker.kill),
            Action.BROKER_STOP: lambda: self._end_broker(Broker.stop),
            Action.BROKER_START: self._start_broker,
            Action.UPLOAD_KILL: lambda: self._kill("UploadFunction"),
            Action.RESOLVER_KILL: lambda: self._kill("ResolverFunction"),
        }
        self.redriven = 0
        self.agent_starts = 1

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
        package = {"PYTHONPATH": str(Path(coldstream.__path__[0]).parent)}
        environment = process_environment(os.environ, package)
        emulator = ChildProcess("coldstream.local.emulator", environment=environment, request={})
        opening.callback(emulator.stop)
        endpoint = emulator.ready()["url"]
        self.aws = opening.enter_context(FaultyAws(endpoint, seed=self._seed))
        credentials = {"AWS_ACCESS_KEY_ID": "functions", "AWS_SECRET_ACCESS_KEY": "fake"}
        self.stack = opening.enter_context(
            EmulatedStack(
                inherited={"AWS_ENDPOINT_URL": self.aws.url, **credentials},
                parameters={"FragmentBytes": str(FRAGMENT_BYTES)},
                log=opening.enter_context((self._directory / "functions.log").open("w")),
            )
        )
        self._direct = self.stack.environment | {"AWS_ENDPOINT_URL": endpoint}
        self._sqs = client("sqs", self._direct)
        self._queues = list(self._dead_letter_queues())
        self.broker = opening.enter_context(Broker())
        with self.broker.connect() as streams:
            streams.create_stream(STREAM, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=MAX_LENGTH_BYTES)
        self.directory = self.broker.stream_directory(STREAM)
        time.sleep(SETTLED_S)
        self.agent = AgentProcess(
            self.stack.environment | {"AWS_ACCESS_KEY_ID": AGENT_KEY},
            self._directory / "agent",
            self.broker.stream_uri,
            *("--data", self.broker.data_directory, *self._options),
        )
        opening.enter_context(self.agent)
        self.agent.wait_ready()
        self._loop = opening.enter_context(_LoopThread())
        self.readers = Readers(self._seed, resolver=self.stack.resolver_url, broker=self.broker.stream_uri)
        opening.callback(lambda: self.call(self.readers.end_all()))
        self.publisher = Publisher(self.broker.host, self.broker.stream_port, seed=self._seed, per_s=MESSAGES_PER_S)
        self.publishing = self._loop.submit(self.publisher.run())
        opening.callback(self.heal)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work in the loop of the publisher and the consumers."""
        return self._loop.submit(work).result(60)

    def apply(self, step: Step) -> None:
        """Do what a step says."""
        match step:
            case Step(action=Action.AWS, faults=Faults() as faults):
                self.aws.faults = faults
            case Step(action=Action.READER_BEGIN, reader=int(key), start=Start() as start):
                self.call(self._begin_reader(key, start))
            case Step(action=Action.READER_END, reader=int(key)):
                self.call(self.readers.end(key))
            case _:
                self._simple[step.action]()

    def heal(self) -> None:
        """Bring everything back that is down."""
        self.aws.faults = Faults()
        if not self.broker.is_running:
            self._start_broker()
        self._wait_broker()
        if not self._agent_is_up:
            self._start_agent()

    def tend(self) -> None:
        """Do what operators do: put dead letters back. Raises AssertionError when something ended by itself."""
        self.stack.check()
        if self._agent_is_up and not self.agent.is_running:
            raise AssertionError(f"the agent ended by itself:\n{self.agent.log.read_text()[-4000:]}")
        if self.publishing.done():
            self.publishing.result()
        if time.monotonic() - self._redriven_at > REDRIVE_EVERY_S:
            self._redriven_at = time.monotonic()
            for source, dead_letters in self._queues:
                self._redrive(source, dead_letters)

    def describe(self) -> str:
        """Say how things are, for who looks for what went wrong."""
        counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        queues = {
            url.rpartition("/")[2]: list(
                self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"].values()
            )
            for url in itertools.chain.from_iterable(self._queues)
        }
        lines = [
            f"published {self.publisher.confirmed}; the broker's segments: {self._segments()}",
            f"agent: {self.agent.stream(STREAM)}",
            f"queues, waiting and in flight: {queues}; put back: {self.redriven}",
            f"staged: {[key for key in self.objects() if '/data/' not in key]}",
            *(f"{reading}, up to message {reading.last}" for reading in self.readers.living),
        ]
        return "\n".join(lines)

    def newest_segment(self) -> int:
        """Return the first offset of the broker's newest segment: up to there, everything has rolled."""
        return max(self._segments())

    def objects(self) -> list[str]:
        """Return the keys of all objects in the bucket."""
        s3 = client("s3", self._direct)
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self._direct["COLDSTREAM_BUCKET"])
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("*.segment"))

    def _start_agent(self) -> None:
        self.agent.start()
        self.agent_starts += 1
        self._agent_is_up = True

    def _end_agent(self, end: Callable[[AgentProcess], object]) -> None:
        self._agent_is_up = False
        end(self.agent)

    def _start_broker(self) -> None:
        self.broker.begin()
        self._broker_is_starting = True

    def _end_broker(self, end: Callable[[Broker], None]) -> None:
        self._wait_broker()
        end(self.broker)

    def _wait_broker(self) -> None:
        if self._broker_is_starting:
            self.broker.wait_ready()
            self._broker_is_starting = False

    def _kill(self, function: str) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was killed just before
            os.kill(self.stack.process_id(function), signal.SIGKILL)

    async def _begin_reader(self, key: int, start: Start) -> None:
        self.readers.begin(key, start, self.publisher.confirmed)

    def _dead_letter_queues(self) -> list[tuple[str, str]]:
        """Return pairs of a queue's URL and that of the queue of its dead letters."""
        found = []
        for url in self._sqs.list_queues().get("QueueUrls", []):
            attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
            policy = json.loads(attributes.get("Attributes", {}).get("RedrivePolicy", "{}"))
            if policy:
                name = policy["deadLetterTargetArn"].rpartition(":")[2]
                found.append((url, self._sqs.get_queue_url(QueueName=name)["QueueUrl"]))
        return found

    def _redrive(self, source: str, dead_letters: str) -> None:
        while letters := self._sqs.receive_message(QueueUrl=dead_letters, MaxNumberOfMessages=10).get("Messages"):
            for letter in letters:
                self._sqs.send_message(QueueUrl=source, MessageBody=letter["Body"])
                self._sqs.delete_message(QueueUrl=dead_letters, ReceiptHandle=letter["ReceiptHandle"])
                self.redriven += 1


class _LoopThread:
    """An event loop in a thread of its own."""

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(started)), name="clients")
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start work."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _live(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        started.set()
        await self._ended.wait()
