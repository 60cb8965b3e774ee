"""An archive in memory that holds everything a scrub looks at, and runs of the scrub over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.manifest.stream import StreamId
from coldstream.scrub.budget import Budget
from coldstream.scrub.damage import Damage
from coldstream.scrub.report import ScrubReport
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, ChunkArchive, steady
from tests.support.compaction import Compaction

NO_LIMIT = Budget()
LATER = TimestampMs(NOW + 3 * 3600 * 1000)


def scrub(
    archive: ChunkArchive,
    budget: Budget = NO_LIMIT,
    *,
    now: int = LATER,
    only: Sequence[StreamId] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> ScrubReport:
    scrubber = Scrubber(archive.table, archive.objects, Keys(), lambda: TimestampMs(now), pause=lambda _: None)
    return scrubber.run(only, ScrubOptions(**{"resume": False, **options}), budget, should_stop=should_stop)


def damages(report: ScrubReport) -> list[Damage]:
    return [finding.damage for finding in report.findings]


def small_archive() -> ChunkArchive:
    """Six fragments with one hole; the first two are compacted."""
    archive = ChunkArchive(objects=MemoryObjects(clock=lambda: NOW))
    for first in (0, 10, 20, 40, 50, 60):
        archive.add(first, steady(5, first * 10 + 1000, first * 10 + 1005))
    compaction = Compaction(archive)
    group = Group(compaction.between(Offset(0), Offset(20)))
    merged = compaction.store(group, Encoding.ZSTD_SEEKABLE)
    for _ in compaction.replace(group, merged):
        pass
    control_of(archive).write_stream(archive.stream)
    return archive


def control_of(archive: ChunkArchive) -> ControlObjects:
    return ControlObjects(archive.objects, Keys())
