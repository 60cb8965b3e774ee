"""Objects of the recovery log: the header, and the runs that it names."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.span_object import LoggedRun, check_run, parse_header, span_object
from coldstream.units import Offset
from tests.fuzz.fuzz_target import CORRUPT, SOURCE, FuzzTarget, same
from tests.fuzz.golden_bytes import golden_chunks, parsed_chunks

_STREAMS = (StreamId("/", "orders", Incarnation("__orders_1")), StreamId("größe", "№ 2", Incarnation("gr_e___2_2")))


def _span_object(data: bytes) -> None:
    header = parse_header(data, source=SOURCE)
    runs = []
    for entry in header.entries:
        run = data[entry.byte_range.start : entry.byte_range.end]
        check_run(run, entry, source=SOURCE)
        runs.append(LoggedRun(entry.stream, entry.first_offset, entry.next_offset, run))
    same(span_object(runs), data[: header.object_bytes])


def _seeds() -> Iterator[bytes]:
    runs = [
        LoggedRun(_STREAMS[at % 2], Offset(chunk.header.chunk_id), chunk.header.next_offset, data)
        for at, (chunk, data) in enumerate(zip(parsed_chunks(), golden_chunks(), strict=True))
    ]
    yield span_object(())
    yield span_object(runs[:1])
    yield span_object(runs)


TARGETS = (FuzzTarget("span-objects", _span_object, _seeds, CORRUPT),)
