"""Questions to the archive, on doubles and over HTTP."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from dataclasses import replace

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history import gateway_history
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.history.port import ArchivedHeader, History, StreamBounds
from coldstream.manifest.appending import plan_create
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId, new_stream
from coldstream.read.http import ClosedError
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, random_archive, steady
from tests.support.compaction import Compaction
from tests.support.http_archive import Fault, HttpObjects, object_server
from tests.support.made_chunks import ids, made_chunk
from tests.support.removing import delete
from tests.support.served_history import RECORDS, TAIL, ServedHistory
from tests.support.written_maps import NAME, a_map, write

NAMES = STREAM.vhost, STREAM.name


def test_specs_attach_where_reading_begins(served: ServedHistory) -> None:
    async def scenario(history: History) -> None:
        assert await history.bounds(*NAMES) == StreamBounds(STREAM.incarnation, Offset(0), Offset(TAIL))
        assert await history.attach(*NAMES, FIRST) == 0
        assert await history.attach(*NAMES, LAST) == TAIL - RECORDS
        assert await history.attach(*NAMES, NEXT) is None
        assert await history.attach(*NAMES, AtOffset(Offset(7))) == 7
        assert await history.attach(*NAMES, AtOffset(Offset(TAIL - 1))) == TAIL - 1
        assert await history.attach(*NAMES, AtOffset(Offset(TAIL))) is None
        assert await history.attach(*NAMES, AtTimestamp(TimestampMs(5001))) == 6 * RECORDS
        assert await history.attach(*NAMES, AtTimestamp(TimestampMs(10**9))) is None

    served.run(scenario)


@pytest.mark.parametrize("spec", [LAST, AtTimestamp(TimestampMs(10**6))], ids=str)
def test_what_was_archived_a_moment_ago_is_attached_to(served: ServedHistory, spec: OffsetSpec) -> None:
    async def scenario(history: History) -> None:
        assert (await history.bounds(*NAMES)) == StreamBounds(STREAM.incarnation, Offset(0), Offset(TAIL))
        served.archive.add(TAIL, steady(RECORDS, 10**6))
        assert await history.attach(*NAMES, spec) == TAIL
        assert await history.attach(*NAMES, AtTimestamp(TimestampMs(10**9))) is None

    served.run(scenario)


def test_a_timestamp_attaches_at_the_first_chunk_that_is_late_enough_whatever_the_archive() -> None:
    for seed in range(12):
        rng = random.Random(seed)
        archive = random_archive(rng, gaps=0)
        if not archive.chunks:
            continue
        http_objects = HttpObjects()
        with object_server(http_objects) as server:
            for key, data in archive.objects.objects.items():
                http_objects.put(key, data)
            archive.objects = http_objects
            served = ServedHistory(archive, server)
            times = range(-1, 1 + max(chunk.header.timestamp for chunk in archive.chunks), 3)

            async def scenario(history: History, times: range = times) -> list[Offset | None]:
                return [await history.attach(*NAMES, AtTimestamp(TimestampMs(one))) for one in times]

            wanted = [
                next((Offset(found.header.chunk_id) for found in archive.chunks if found.header.timestamp >= one), None)
                for one in times
            ]
            assert served.run(scenario) == wanted


def test_an_unknown_stream_is_no_error(served: ServedHistory) -> None:
    async def scenario(history: History) -> None:
        assert await history.bounds("/", "unknown") is None
        assert await history.attach("/", "unknown", LAST) is None
        assert await history.header_at("/", "unknown", Offset(0)) is None
        assert await history.stored_offset("/", "unknown", "app") is None
        assert await history.shard_map("/", "unknown") is None
        assert await history.streams("other vhost") == ()

    served.run(scenario)


def test_the_header_is_of_the_chunk_that_holds_the_offset(served: ServedHistory) -> None:
    served.archive.add(TAIL + 50, steady(RECORDS, 10**6))
    wanted = {int(chunk.header.chunk_id): chunk.header for chunk in served.archive.chunks}

    async def scenario(history: History) -> None:
        for offset in (0, 4, 5, 99, 100, TAIL - 1, TAIL + 50):
            assert await history.header_at(*NAMES, Offset(offset)) == ArchivedHeader(wanted[offset - offset % RECORDS])
        for offset in (TAIL, TAIL + 49, TAIL + 55, 10**9):
            assert await history.header_at(*NAMES, Offset(offset)) is None

    served.run(scenario)


def test_only_an_erased_chunk_may_differ_in_its_data_from_the_brokers() -> None:
    header = made_chunk(0).header
    other = replace(header, crc=header.crc ^ 1, data_bytes=header.data_bytes - 1)
    assert ArchivedHeader(header).is_of(replace(header, bloom_bytes=16, trailer_bytes=9))
    assert not ArchivedHeader(header).is_of(other)
    assert ArchivedHeader(other, is_erased=True).is_of(header)
    for changed in (
        replace(header, epoch=Epoch(9)),
        replace(header, timestamp=TimestampMs(9)),
        replace(header, records=4),
        replace(header, entries=4),
        replace(header, chunk_id=ChunkId(9)),
    ):
        assert not ArchivedHeader(header, is_erased=True).is_of(changed)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_what_a_compaction_replaces_under_a_reading_is_read_from_its_replacement(
    served: ServedHistory, encoding: Encoding
) -> None:
    wanted = [chunk.data for chunk in served.archive.chunks]

    async def scenario(history: History) -> None:
        found = []
        async with history.read(*NAMES, STREAM.incarnation, Offset(0)) as reading:
            found.append(await anext(reading))
            await asyncio.sleep(0.05)
            compaction = Compaction(served.archive)
            group = Group(compaction.between(Offset(0), Offset(TAIL)))
            for _ in compaction.replace(group, compaction.store(group, encoding)):
                pass
            for entry in group.entries:
                served.archive.objects.delete(entry.key)
            found += [chunk async for chunk in reading]
        assert [chunk.header.to_bytes() + bytes(chunk.data) for chunk in found] == wanted
        assert (await history.header_at(*NAMES, Offset(203))) is not None

    served.run(scenario)


def test_streams_are_those_that_are_not_deleted_in_the_vhost(served: ServedHistory) -> None:
    table = served.archive.table
    for vhost, name in (("/", "b"), ("/", "a"), ("other", "c"), ("/", "gone")):
        archive = ChunkArchive(StreamId(vhost, name, Incarnation(f"x_{name}_1763700000000000000")))
        archive.table = table
        archive.add(0, steady(1, 1))
    delete(table, Incarnation("x_gone_1763700000000000000"))
    write(table, a_map())

    async def scenario(history: History) -> None:
        assert await history.streams("/") == ("a", "b", "orders")
        assert await history.streams("other") == ("c",)
        assert await history.shard_map("/", NAME) == a_map()

    served.run(scenario)


def test_a_direct_stream_has_bounds_before_anything_is_archived(served: ServedHistory) -> None:
    stream = StreamId("/", "direct", Incarnation("__direct_1763700000000000000"))
    served.archive.table.apply(plan_create(stream, NOW, first=Offset(40), properties={}))

    async def scenario(history: History) -> None:
        wanted = StreamBounds(stream.incarnation, Offset(40), Offset(40), is_direct=True)
        assert await history.bounds("/", "direct") == wanted
        assert await history.attach("/", "direct", FIRST) is None

    served.run(scenario)


def test_bounds_are_kept_for_a_moment_and_fresh_ones_are_new(served: ServedHistory) -> None:
    async def scenario(history: History) -> None:
        before = await history.bounds(*NAMES)
        served.archive.add(TAIL, steady(RECORDS, 10**6))
        assert await history.bounds(*NAMES) == before
        fresh = await history.bounds(*NAMES, fresh=True)
        assert fresh is not None
        assert fresh.tail == TAIL + RECORDS

    served.run(scenario)


def test_a_noted_offset_is_told_at_once_and_kept_for_the_next_gateway(served: ServedHistory) -> None:
    async def scenario(history: History) -> None:
        assert await history.stored_offset(*NAMES, "app") is None
        history.note_offset(*NAMES, "app", Offset(41))
        assert await history.stored_offset(*NAMES, "app") == 41

    async def after(history: History) -> None:
        assert await history.stored_offset(*NAMES, "app") == 41
        assert await history.stored_offset(*NAMES, "other") is None

    served.run(scenario)
    served.run(after)


def test_an_offset_that_was_stored_before_a_new_incarnation_was_archived_is_not_forgotten(
    served: ServedHistory,
) -> None:
    again = ChunkArchive(new_stream(*NAMES, 1_763_700_900_000_000_000))
    again.table = served.archive.table

    async def scenario(history: History) -> None:
        history.note_offset(*NAMES, "app", Offset(2))
        await history.flush()
        again.add(0, steady(RECORDS, 1))

    async def after(history: History) -> None:
        bounds = await history.bounds(*NAMES)
        assert bounds is not None
        assert bounds.incarnation == again.stream.incarnation
        assert await history.stored_offset(*NAMES, "app") == 2

    served.run(scenario)
    served.run(after)


def test_a_table_that_hangs_delays_neither_a_reading_under_way_nor_closing(
    served: ServedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()

    async def scenario(history: GatewayHistory) -> None:
        async with history.read(*NAMES, STREAM.incarnation, Offset(0)) as reading:
            first = await anext(reading)
            monkeypatch.setattr(MemoryTable, "head", lambda *_: may_go_on.wait(30))
            questions = [asyncio.ensure_future(history.bounds("/", f"s{number}")) for number in range(100)]
            questions += [asyncio.ensure_future(history.bounds(*NAMES))]
            await asyncio.sleep(0)
            rest = [chunk async for chunk in reading]
            assert [first.header.chunk_id, *ids(rest)] == list(range(0, TAIL, RECORDS))
        began = time.monotonic()
        await history.close()
        assert time.monotonic() - began < 5
        results = await asyncio.gather(*questions, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError | ClosedError) or one is None for one in results)

    try:
        served.run(scenario)
    finally:
        may_go_on.set()


def test_a_question_that_gets_no_answer_is_given_up(served: ServedHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    monkeypatch.setattr(gateway_history, "QUESTION_S", 0.2)
    monkeypatch.setattr(MemoryTable, "incarnation_of", lambda *_: may_go_on.wait(30))
    figures = GatewayFigures()

    async def main() -> None:
        history = GatewayHistory(served.archive.table, served.archive.objects, figures=figures)
        with pytest.raises(UnavailableError):
            await history.bounds(*NAMES)
        await history.close()

    try:
        asyncio.run(main())
    finally:
        may_go_on.set()
    assert figures.archive_failures_total == {"unavailable": 1}


def test_a_bucket_that_hangs_does_not_delay_questions_to_the_table(served: ServedHistory) -> None:
    served.server.faults = lambda _: Fault(stall_s=30)

    async def scenario(history: GatewayHistory) -> None:
        hanging = [asyncio.ensure_future(history.attach(*NAMES, AtTimestamp(TimestampMs(5001)))) for _ in range(50)]
        assert await asyncio.to_thread(served.server.got_one.wait, 10)
        assert await history.bounds(*NAMES, fresh=True) is not None
        assert await history.attach(*NAMES, FIRST) == 0
        for one in hanging:
            one.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    began = time.monotonic()
    served.run(scenario)
    assert time.monotonic() - began < 20
