"""What somebody should know before a job is created."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class WarningCode(StrEnum):
    """What a warning is about, for programs."""

    NOTHING_MATCHES = "nothing_matches"
    EMPTY_WINDOW = "empty_window"
    NOT_ARCHIVED_YET = "not_archived_yet"
    GAPS = "gaps"
    QUARANTINE = "quarantine"
    COLD = "cold"
    HOLDS = "holds"
    DELETES = "deletes"
    SAME_STREAM = "same_stream"
    MIXED = "mixed"
    NO_POLICY = "no_policy"
    BOUND = "bound"
    BROKER = "broker"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class PreviewWarning:
    """A warning: what it is about, in words, and of which stream, None for the job as a whole."""

    code: WarningCode
    text: str
    stream: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the warning for JSON."""
        return {"code": self.code.value, "text": self.text, "stream": self.stream}
