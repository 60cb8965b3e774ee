"""What an actor asks of the world: calls of the two store ports, and what else comes from outside of a process."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Part(IntEnum):
    """The part of the world that a request is about. The first three are stores; the others are at hand at once."""

    LOG = 0
    NAMES = 1
    BUCKET = 2
    WAIT = 3
    CLOCK = 4
    HOST_CLOCK = 5
    TELL = 6
    NAME = 7

    @property
    def is_silent(self) -> bool:
        """Whether it is answered at once: no other actor can tell when, or it has to be as early as it may be."""
        return self >= Part.CLOCK


READS = frozenset({
    "head", "heads", "overview", "log_from_offset", "log_from_timestamp", "log_end", "log_at_once", "items_at_once",
    "log_before", "gap", "gaps", "gaps_before", "missing", "missing_before", "missing_after", "quarantine",
    "tombstones", "journal", "recorded_changes", "holds", "erasures", "rows", "incarnation_of", "bound_cluster",
    "streams", "grants", "policies", "cursor", "state_item", "state_items", "get_range", "get_whole", "uploads",
    "uploads_under", "unfinished_uploads", "parts", "info", "keys", "listed", "versions", "capabilities", "legal_hold",
    "restore_state", "presign_get", "page", "recorded_page",
})  # fmt: skip
"""Calls of the ports that change nothing."""

YIELDING = frozenset({"missing", "journal", "recorded_changes", "rows", "state_items"})
"""Calls of the table that yield one item after the other."""

DELETIONS = frozenset({"delete", "delete_many", "delete_versions"})

LISTINGS = frozenset({"keys", "listed", "versions", "uploads", "uploads_under", "unfinished_uploads"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request: which method of which part, and its arguments, by name those after the bar."""

    part: Part
    method: str
    args: tuple[Hashable, ...] = ()
    options: tuple[tuple[str, Hashable], ...] = ()

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.part <= Part.BUCKET and self.method not in READS

    @property
    def is_deletion(self) -> bool:
        """Whether objects may go."""
        return self.part is Part.BUCKET and self.method in DELETIONS

    @property
    def is_of_several(self) -> bool:
        """Whether it deletes several objects, of which some may stay."""
        return self.part is Part.BUCKET and self.method in {"delete_many", "delete_versions"} and self.args != ((),)

    @property
    def touches(self) -> tuple[str, bool]:
        """What it is about: a key, or a prefix of keys (True). Of a log or the names, all of it."""
        if self.part is not Part.BUCKET:
            return "", True
        if self.method in {"delete_many", "delete_versions", "copy", "copy_in_class"}:
            return "", True  # several keys
        return str(self.args[0]) if self.args else "", self.method in LISTINGS

    @property
    def written(self) -> tuple[str, ...]:
        """The keys that it writes, of a bucket; "" for any other part."""
        if self.part is not Part.BUCKET:
            return ("",)
        match self.method:
            case "delete_many":
                return self.args[0]  # type: ignore[return-value]
            case "delete_versions":
                return tuple(key for key, _ in self.args[0])  # type: ignore[attr-defined]
            case "copy" | "copy_in_class":
                return (str(self.args[1]),)
        return (str(self.args[0]),)

    def meets(self, other: Request) -> bool:
        """Tell whether it may make a difference which of the two comes first, in some state of the stores."""
        if Part.WAIT in {self.part, other.part}:
            return True
        if self.is_deletion or other.is_deletion:
            return True  # what may be deleted depends on what is archived, and on what somebody was told
        if self.part is not other.part or not (self.writes or other.writes):
            return False
        (one, is_prefix), (two, is_other_prefix) = self.touches, other.touches
        if is_prefix and is_other_prefix:
            return one.startswith(two) or two.startswith(one)
        return one.startswith(two) if is_other_prefix else two.startswith(one) if is_prefix else one == two

    def __str__(self) -> str:
        told = [_short(one) for one in self.args] + [f"{name}={_short(one)}" for name, one in self.options]
        return f"{self.part.name.lower()}.{self.method}({', '.join(told)})"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is an error. `make` makes it anew each time: a raised one keeps the frames it went through."""

    told: str
    make: Callable[[], BaseException] = field(compare=False)

    @classmethod
    def of(cls, error: BaseException) -> Refusal:
        """Return the answer that raises such an error."""
        kind, args, facts = type(error), error.args, dict(getattr(error, "__dict__", {}))

        def make() -> BaseException:
            made = kind.__new__(kind, *args)
            made.args = args
            made.__dict__.update(facts)
            return made

        return cls(f"{kind.__name__}: {error}", make)

    def __str__(self) -> str:
        return self.told


def hashable(value: Any) -> Hashable:
    """Return a value of which nothing can change."""
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value)) if type(value) in {list, tuple} else value
    if isinstance(value, dict):
        return tuple(sorted((key, hashable(one)) for key, one in value.items()))
    return value  # type: ignore[no-any-return]


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    event = getattr(value, "event", None)
    if event is not None:
        return f"{event.kind} at revision {event.revision}"
    told = str(value) if not hasattr(value, "__dataclass_fields__") else type(value).__name__
    return told if len(told) <= 90 else f"{told[:87]}..."
