"""Reports: what became of each stream of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coldstream.compact.sweep import Swept
from coldstream.compact.task import Failure, Task
from coldstream.compact.write import Written
from coldstream.manifest.stream import StreamId


@dataclass(slots=True)
class StreamReport:
    """What became of one stream.

    `fragments` of `object_bytes` became `fragments_after` of `object_bytes_after`. `superseded` are groups that others
    changed meanwhile. `read_bytes` and `sent_bytes` passed whoever wrote, `copied_bytes` were copied by the store.
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
    swept: Swept = field(default_factory=Swept)
    failures: list[Failure] = field(default_factory=list)

    def add(self, task: Task, written: Written, *, is_committed: bool) -> None:
        """Count what was written, and committed or not."""
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


def summary(reports: Sequence[StreamReport], *, seconds: float) -> dict[str, object]:
    """Return a run's summary, for JSON: the totals, and each stream."""
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


def _to_json(report: StreamReport) -> dict[str, Any]:
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
        "not_swept": list(swept.kept),
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
