"""What else changes an archive leaves the publishers of a direct stream known, unless it removes all of the stream."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from coldstream.erase.run import Eraser
from coldstream.lifecycle.prefix import remove_prefix
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.truncation import up_to_offset
from coldstream.manifest.entry import Encoding
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.streams.publishers import Publishers
from tests.erase.samples import between
from tests.support.compacting import compact_stream, options_of
from tests.support.direct_processes import PUBLISHERS, STREAMS, DirectWorld, Process, one_thread_each
from tests.support.flushing import entries

STREAM = STREAMS[0]


class ClosedStream:
    """A stream of a few flushes, which was closed."""

    def __init__(self) -> None:
        self.world = DirectWorld(1)
        process = Process(self.world, "a", random.Random(1))
        process.open(STREAM)
        for _ in range(4):
            for _ in range(7):
                process.append(STREAM)
            process.flush(STREAM)
        self.known = last_of(process.opened[STREAM].publishers)
        process.close()
        archive = self.world.archive
        self.stores = LifecycleStores.open(archive.table, archive.objects, archive.keys, grace_ms=LONGEST_GRACE_MS)

    def opened(self) -> dict[bytes, int | None]:
        """Return what the next opener knows."""
        found = Process(self.world, "next", random.Random(1)).open(STREAM).publishers
        return last_of(Publishers() if found is None else found)


def last_of(publishers: Publishers) -> dict[bytes, int | None]:
    return {one: publishers.last_of(one) for one in PUBLISHERS}


@pytest.fixture
def stream() -> Iterator[ClosedStream]:
    with one_thread_each():
        made = ClosedStream()
        assert all(made.known.values())
        yield made


@pytest.mark.parametrize("encoding", list(Encoding))
def test_compaction_keeps_them(stream: ClosedStream, encoding: Encoding) -> None:
    world = stream.world
    report = compact_stream(
        world.table, world.objects, STREAM, options_of(encoding), keys=world.archive.keys, now=world.now()
    )
    assert not report.failures
    assert len(entries(world.archive, STREAM)) == 1
    assert stream.opened() == stream.known


def test_an_erasure_of_every_message_keeps_them(stream: ClosedStream) -> None:
    eraser = Eraser(stream.stores)
    log = entries(stream.world.archive, STREAM)
    erasure, scope, _ = eraser.begin(
        STREAM, between(log[0].first_offset, log[-1].next_offset), reason="", by="an operator"
    )
    assert eraser.run(STREAM, erasure, scope.selection).is_done
    assert {one.erased for one in entries(stream.world.archive, STREAM)} >= {True}
    assert stream.opened() == stream.known


def test_a_trim_of_everything_keeps_them(stream: ClosedStream) -> None:
    process = Process(stream.world, "b", random.Random(1))
    state = process.open(STREAM)
    stream.world.trimmed[STREAM] = state.tail
    process.opened[STREAM].flushed = state.tail
    process.dice = random.Random()
    process.dice.randint = lambda _, most: most  # type: ignore[method-assign]
    process.trim(STREAM)
    assert len(entries(stream.world.archive, STREAM)) == 1
    assert stream.opened() == stream.known


def test_a_removal_of_all_of_it_keeps_the_last_fragment_and_them(stream: ClosedStream) -> None:
    last = entries(stream.world.archive, STREAM)[-1]
    for up_to in (last.first_offset, last.next_offset):
        remove_prefix(stream.stores, STREAM.incarnation, up_to_offset(up_to), why="", by="")
        assert entries(stream.world.archive, STREAM) == (replace(last, prior_offset=None),)
        assert stream.opened() == stream.known
