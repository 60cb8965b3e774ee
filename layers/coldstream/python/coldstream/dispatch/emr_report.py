"""What a Spark script says at its end: its summary, which it leaves in the table as the cursor that the job names.

EMR itself tells a state and a sentence. The summary has how much there was, and what failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from coldstream.jobs.job import Job
from coldstream.plain_json import read_json
from coldstream.store.ports import ManifestTable

_BYTES = ("read_bytes", "object_bytes")
MOST_TOLD = 3


def report_name(job: Job) -> str:
    """Return the name of the cursor for the summary of a job's present lease."""
    return f"spark-{job.id}-{job.epoch}"


@dataclass(frozen=True, slots=True)
class EmrReport:
    """The part of a summary that a job shows. `problems` are the first reasons for what was not done."""

    messages: int = 0
    size_bytes: int = 0
    problems: tuple[str, ...] = ()

    @classmethod
    def take(cls, table: ManifestTable, job: Job) -> Self:
        """Read a summary, an empty one if there is none or if it makes no sense, and forget it. Cost: two requests."""
        data = table.cursor(report_name(job))
        if data is None:
            return cls()
        found = cls.from_bytes(data)
        table.delete_cursor(report_name(job))
        return found

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a summary as far as it makes sense: it comes from a script that may be of another release."""
        try:
            summary = read_json(data)
        except ValueError:
            return cls()
        if not isinstance(summary, dict):
            return cls()
        size_bytes = next(filter(None, (_count(summary.get(name)) for name in _BYTES)), 0)
        return cls(_count(summary.get("messages")), size_bytes, tuple(_problems(summary))[:MOST_TOLD])


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _problems(summary: dict[str, Any]) -> list[str]:
    told = [str(one) for one in _list(summary.get("errors"))]
    failures = [one for one in _list(summary.get("failures")) if isinstance(one, dict)]
    told += [f"{one.get('where', '')}: {one.get('message', '')}".strip(": ") for one in failures]
    damages = summary.get("damages")
    if isinstance(damages, dict) and damages:
        told.append("damages: " + ", ".join(f"{count} {kind}" for kind, count in sorted(damages.items())))
    return [one[:500] for one in told]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
