"""What the doctor says: one finding about one part of an archive, and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import AccessDeniedError, ColdstreamError, UnavailableError


class DiagnosisVerdict(StrEnum):
    """How a part is. UNKNOWN: it could not be asked, or does not exist here, as on a laptop."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    UNKNOWN = "unknown"


class ArchivePart(StrEnum):
    """The part of an archive that a diagnosis is about."""

    SETTINGS = "settings"
    BUCKET = "bucket"
    TABLE = "table"
    EVENTS = "events"
    QUEUES = "queues"
    ALARMS = "alarms"
    STREAMS = "streams"
    AGENTS = "agents"
    UPKEEP = "upkeep"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. `todo` is the command, or the advice, for what to do next; None if nothing is to be done."""

    part: ArchivePart
    what: str
    verdict: DiagnosisVerdict
    found: str
    todo: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {"part": self.part, "what": self.what, "verdict": self.verdict, "found": self.found, "todo": self.todo}


def diagnose(
    part: ArchivePart, what: str, ask: Callable[[], Diagnosis], *, action: str, needed: bool = False
) -> Diagnosis:
    """Return what `ask` says, or why it could not be asked.

    `action` is the right of IAM that the request needs. Without it, the diagnosis is unknown; bad if the right is
    `needed` to operate the archive at all. A service that is not there leaves it unknown.
    """
    try:
        return ask()
    except AccessDeniedError as err:
        verdict = DiagnosisVerdict.BAD if needed else DiagnosisVerdict.UNKNOWN
        return Diagnosis(part, what, verdict, str(err), f"grant {action} to whoever runs this")
    except UnavailableError as err:
        todo = "check region, endpoint and network"
        return Diagnosis(
            part, what, DiagnosisVerdict.BAD if needed else DiagnosisVerdict.UNKNOWN, str(err), todo if needed else None
        )
    except ColdstreamError as err:
        if needed:
            return Diagnosis(part, what, DiagnosisVerdict.BAD, str(err), "check the name: it is an output of the stack")
        return Diagnosis(part, what, DiagnosisVerdict.UNKNOWN, str(err))
