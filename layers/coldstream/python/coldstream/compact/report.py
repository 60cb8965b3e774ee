"""The report of a run: what it did to each stream, and its summary as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coldstream.compact.task import CompactionTask, GroupFailure
from coldstream.compact.write import MergedFragment
from coldstream.lifecycle.sweep import SweepReport
from coldstream.manifest.stream import StreamId


@dataclass(slots=True)
class CompactionReport:
    """What a run did to one stream.

    `fragments` of `object_bytes` became `fragments_after` of `object_bytes_after`. `superseded` counts the groups that
    others changed first. `read_bytes` and `sent_bytes` passed the writing process; the store copied `copied_bytes`.
    """

    stream: StreamId
    fragments: int = 0
    fragments_after: int = 0
    object_bytes: int = 0
    object_bytes_after: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0
    copied_bytes: int = 0
    superseded: int = 0
    swept: SweepReport = field(default_factory=SweepReport)
    failures: list[GroupFailure] = field(default_factory=list)

    def add(self, task: CompactionTask, written: MergedFragment, *, is_committed: bool) -> None:
        """Count an object that was written. If it was not committed, only the bytes that passed count."""
        self.read_bytes += written.read_bytes
        self.sent_bytes += written.sent_bytes
        self.copied_bytes += written.copied_bytes
        if not is_committed:
            self.superseded += 1
            return
        self.fragments += len(task.group.entries)
        self.fragments_after += 1
        self.object_bytes += task.group.object_bytes
        self.object_bytes_after += written.entry.object_bytes


def run_summary(reports: Sequence[CompactionReport], *, seconds: float) -> dict[str, object]:
    """Return the summary of a run, for JSON: the totals, and each stream."""
    streams = [_to_json(report) for report in reports]
    totals = {name: sum(stream[name] for stream in streams) for name in _COUNTS}
    failed = sum(len(report.failures) for report in reports)
    return {"dry_run": False, **totals, "failed": failed, "seconds": round(seconds, 3), "streams": streams}


_COUNTS = (
    "fragments",
    "fragments_after",
    "object_bytes",
    "object_bytes_after",
    "read_bytes",
    "sent_bytes",
    "copied_bytes",
    "superseded",
    "swept_objects",
    "swept_bytes",
)


def _to_json(report: CompactionReport) -> dict[str, Any]:
    swept = report.swept
    return {
        "vhost": report.stream.vhost,
        "name": report.stream.name,
        "incarnation": report.stream.incarnation,
        "fragments": report.fragments,
        "fragments_after": report.fragments_after,
        "object_bytes": report.object_bytes,
        "object_bytes_after": report.object_bytes_after,
        "read_bytes": report.read_bytes,
        "sent_bytes": report.sent_bytes,
        "copied_bytes": report.copied_bytes,
        "superseded": report.superseded,
        "swept_objects": swept.objects,
        "swept_bytes": swept.object_bytes,
        "not_swept": [*swept.kept, *(failure.key for failure in swept.failures)],
        "failures": [
            {
                "error": failure.kind.__name__,
                "message": failure.message,
                "first_offset": failure.first_offset,
                "next_offset": failure.next_offset,
                "key": failure.key,
                "position": failure.position,
            }
            for failure in report.failures
        ],
    }
