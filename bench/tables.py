"""Replay into tables: Parquet and lines of JSON, from large chunks and from chunks of one message."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import Aim, Cell, Section, median_run, say
from bench.orders import make_orders
from coldstream.archive.upload import Uploader
from coldstream.ingest.stage import stage
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.replay.request import ReplayRequest
from coldstream.replay.tables.directory import LocalDirectory
from coldstream.replay.tables.layout import FileFormat, Partitioning
from coldstream.replay.tables.report import TableReport
from coldstream.replay.tables.run import claim_table, replay_to_table
from coldstream.replay.tables.table import Table
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MIB, Offset

MESSAGES = 40_000
CHUNK_MESSAGES = (200, 1)
ROUNDS = 3
STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))

HOW = f"""\
About {MESSAGES:,} JSON orders of about 400 bytes, in chunks of 200 or of one message, are archived in memory and
replayed into a table on the local disk. Memory stands for S3 and DynamoDB, so the figures are those of the rows and
the files. CPU is that of the process. {ROUNDS} rounds, in turns; medians."""


def measure() -> Section:
    """Measure both formats with both sizes of chunks."""
    archives = {size: _Archive(size) for size in CHUNK_MESSAGES}
    cases = [(form, size) for form in (FileFormat.PARQUET, FileFormat.JSONL) for size in CHUNK_MESSAGES]
    rates: dict[tuple[FileFormat, int], list[float]] = {case: [] for case in cases}
    for number in range(ROUNDS):
        say(f"round {number + 1}")
        for form, size in cases:
            rates[form, size].append(archives[size].replay(form))
    median = {case: median_run(found, lambda rate: rate) for case, found in rates.items()}
    baseline = median[cases[0]]
    rows: list[tuple[Cell, ...]] = [
        (f"{form}, chunks of {size}", rate, 1e6 / rate, rate / baseline) for (form, size), rate in median.items()
    ]
    small = median[FileFormat.PARQUET, 1] / baseline
    lines = median[FileFormat.JSONL, 200] / baseline
    return Section(
        title="Replay into tables",
        how=HOW,
        columns=("table", "rows a CPU second", "CPU us a row", "of Parquet, large chunks"),
        rows=tuple(rows),
        aims=(
            Aim("half the speed of large chunks, or more, from chunks of one message", f"{small:.2f}x", small >= 0.5),
            Aim("lines of JSON at half of Parquet's speed, or more", f"{lines:.2f}x", lines >= 0.5),
        ),
    )


class _Archive:
    """A stream, archived in memory."""

    def __init__(self, chunk_messages: int) -> None:
        self._table, self._objects = MemoryTable(), MemoryObjects()
        uploader = Uploader(self._table, self._objects, Keys(), 64 * MIB)
        with TemporaryDirectory() as made:
            segment = make_orders(Path(made) / "segments", size_bytes=MESSAGES * 400, chunk_messages=chunk_messages)
            uploader.upload(stage(segment, STREAM, self._objects, Keys()))

    def replay(self, form: FileFormat) -> float:
        """Replay all of it, and return the rows a CPU second."""
        head = self._table.head(STREAM.incarnation)
        assert head is not None
        assert head.next_offset is not None
        report = TableReport(ReplayRequest(STREAM, Offset(0), head.next_offset))
        with TemporaryDirectory() as made:
            table = Table(LocalDirectory(Path(made)), form, Partitioning())
            claim_table(table)
            began = time.process_time()
            replay_to_table(self._table, self._objects, table, report)
            seconds = time.process_time() - began
        assert report.rows == head.next_offset
        return report.rows / seconds
