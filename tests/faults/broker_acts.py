"""Replays and loads into streams of a broker that never fails: what misbehaves are the stores that they read."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet
import pytest

from coldstream.format.amqp.message import messages
from coldstream.format.chunk import ChunkType
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.replay import retry
from coldstream.replay import stream as stream_replay
from coldstream.replay.retry import MAX_STALL_S
from coldstream.units import Offset
from tests.faults.fault_acts import Act, Outcome
from tests.faults.faulty_world import ORDERS, FaultyWorld
from tests.faults.memory_broker import MemoryConnection, MemoryStreamBroker


def with_streams(act: Act) -> Act:
    """Return an act that reaches the world's broker, whatever its address; what fails is tried twice more at once."""

    def on_broker(world: FaultyWorld) -> Outcome:
        broker = world.stream_broker
        if broker is None:
            broker = world.stream_broker = MemoryStreamBroker()

        def connection(*_: Any, **__: Any) -> MemoryConnection:
            return MemoryConnection(broker)

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLDSTREAM_BROKER", "rabbitmq-stream://guest:guest@broker-of-7f3a:5552")
            patch.setattr(stream_replay, "LiveConnection", connection)
            patch.setattr(retry, "time", SimpleNamespace(monotonic=count(0, MAX_STALL_S / 2).__next__))
            patch.setattr(retry, "_pause", _no_pause)
            return act(world)

    return on_broker


async def _no_pause(*_: object) -> bool:
    return True


def find_published(stream: str) -> Act:
    """Return what finds every archived message in a stream: once, in order."""

    def find(world: FaultyWorld) -> Outcome:
        assert world.stream_broker is not None
        archived, published = [raw for _, raw in _archived(world)], world.stream_broker.messages(stream)
        is_right = published == archived
        return Outcome(b"", None if is_right else f"{len(published)} messages at the broker of {len(archived)}")

    return find


def find_rows(world: FaultyWorld) -> Outcome:
    """Find a row of every archived message in a table, once."""
    files = sorted((world.scratch / "table").rglob("*.parquet"))
    rows = [offset for file in files for offset in pyarrow.parquet.read_table(file)["offset"].to_pylist()]
    archived = [offset for offset, _ in _archived(world)]
    return Outcome(b"", None if sorted(rows) == archived else f"{len(rows)} rows of {len(archived)} messages")


def _archived(world: FaultyWorld) -> list[tuple[Offset, bytes]]:
    return [
        (message.offset, bytes(message.raw))
        for step in plan_scan(world.table, ORDERS, Offset(0))
        if isinstance(step, ScanSlice)
        for chunk in read_slice(world.objects, step)
        if chunk.header.type is ChunkType.USER
        for message in messages(chunk, source=step.key)
    ]
