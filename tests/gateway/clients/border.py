"""Streams of which the broker has only the end, and the archive the rest: what is read across the border between them.

All that the broker ever delivered of them was noted before it was deleted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.local.stack import EmulatedStack
from tests.gateway.clients.deliveries import Delivered, Deliveries
from tests.gateway.clients.messages import BATCH, entries
from tests.support.agent import AgentProcess
from tests.support.broker import Broker
from tests.support.streams import StreamConnection

SEGMENT_BYTES = 2_000_000
FRAGMENT_BYTES = 4_000_000
KEPT_BYTES = 3_000_000
LIVE_MESSAGES = 5_000
ARCHIVED_S = 240.0
PARTS = 10
"""A stream is published in so many parts; a consumer's offset is stored after each, which takes one of the stream's."""


@dataclass
class BorderStream:
    """A stream: how many messages it has, and what the broker delivered of it directly."""

    name: str
    messages: int
    with_sub_batches: bool
    published: int = 0
    delivered: list[Delivered] = field(default_factory=list)

    @property
    def archived_messages(self) -> int:
        """How many messages are published before the border is made; the others are live."""
        return self.messages // PARTS * (PARTS - 1)

    @property
    def offsets(self) -> list[int]:
        """The offset of each message that was delivered, in order."""
        return [offset for chunk in self.delivered for offset in chunk.offsets]


class NotedBroker:
    """A broker, and what is published at it and noted as it delivers it. It needs no archive."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def publish(self, streams: list[BorderStream]) -> None:
        """Publish all but the last part of each stream, and note how the broker delivers it."""
        with self.broker.connect() as connection:
            for stream in streams:
                connection.create_stream(stream.name, max_segment_bytes=SEGMENT_BYTES)
                self._publish(connection, stream, stream.archived_messages)
        for stream in streams:
            self.note(stream)

    def publish_rest(self, stream: BorderStream) -> None:
        """Publish the last part, in pieces, and note how the broker delivers it."""
        with self.broker.connect() as connection:
            while stream.published < stream.messages:
                # Not much, because the broker goes on to delete: what it delivers is noted while it is there.
                end = min(stream.published + LIVE_MESSAGES, stream.messages)
                self._publish(connection, stream, end)
                self.note(stream)

    def note(self, stream: BorderStream) -> None:
        """Take what the broker delivers of a stream beyond what is noted."""
        noted = sum(chunk.records for chunk in stream.delivered)
        offset = stream.delivered[-1].next_offset if stream.delivered else 0
        with Deliveries(self.broker.stream_port, stream.name, offset=offset) as deliveries:
            stream.delivered += deliveries.take(stream.published - noted)

    def first_offset(self, name: str) -> int:
        """Return the offset of the first message that the broker still has."""
        with Deliveries(self.broker.stream_port, name) as deliveries:
            return deliveries.take(1)[0].chunk_id

    def _publish(self, connection: StreamConnection, stream: BorderStream, end: int) -> None:
        part = stream.messages // PARTS // BATCH * BATCH
        while stream.published < end:
            until = min(stream.published + part, end)
            made = entries(stream.published, until, with_sub_batches=stream.with_sub_batches)
            connection.publish(stream.name, made)
            connection.store_offset(stream.name, "somebody", stream.published)
            stream.published = until


class Border(NotedBroker):
    """A broker, an agent beside it, an archive, and streams that are in both."""

    def __init__(self, broker: Broker, stack: EmulatedStack, agent: AgentProcess) -> None:
        super().__init__(broker)
        self.stack = stack
        self._agent = agent

    def make(self, at_least: Mapping[str, int], *, kept_bytes: int = KEPT_BYTES) -> None:
        """Have what streams have archived, and deleted by the broker, beyond an offset of each."""
        for name in at_least:
            self._wait_archived(name)
        definition = json.dumps({"max-length-bytes": kept_bytes})
        pattern = f"^({'|'.join(at_least)})$"
        self.broker.ctl("set_policy", "--apply-to", "queues", next(iter(at_least)), pattern, definition)
        deadline = time.monotonic() + ARCHIVED_S
        for name, offset in at_least.items():
            # By its files: who subscribes at the first offset while retention acts may get nothing from RabbitMQ 3.10.
            while min(int(path.stem) for path in self.broker.stream_directory(name).glob("*.segment")) < offset:
                assert time.monotonic() < deadline, f"the broker keeps {name}"
                time.sleep(0.2)

    def _wait_archived(self, name: str) -> None:
        deadline = time.monotonic() + ARCHIVED_S
        last = max(self.broker.stream_directory(name).glob("*.segment"))
        while (status := self._agent.stream(name)) is None or (status.archived_to or 0) < int(last.stem):
            assert time.monotonic() < deadline, (
                f"{name} is not archived: {status}\n{self._agent.log.read_text()[-3000:]}"
            )
            time.sleep(0.2)


@contextmanager
def border(broker: Broker, directory: Path, pattern: str) -> Iterator[Border]:
    """Have an archive for a broker's streams whose names match, and an agent that fills it."""
    parameters = {"FragmentBytes": str(FRAGMENT_BYTES)}
    options = ("--data", broker.data_directory, "--include", pattern)
    with ExitStack() as opening:
        log = opening.enter_context((directory / "functions.log").open("w"))
        stack = opening.enter_context(EmulatedStack(inherited={}, parameters=parameters, log=log))
        agent = AgentProcess(stack.environment, directory / "agent", broker.stream_uri, *options)
        yield Border(broker, stack, opening.enter_context(agent))
