"""`GarbageReport`: what a run found in the bucket, what it deleted, and what that costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from coldstream.garbage.kinds import ObjectKind, ObjectState
from coldstream.store.ports import BucketCapabilities
from coldstream.units import TimestampMs

MAX_EXAMPLES = 5
MAX_FAILURES = 100
"""Keys that a report names of each kind and state, and keys that it names of those that could not be deleted."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Objects of one kind with one state.

    `usd_a_month` is what storing them costs, by their classes. `oldest` is the least LastModified, and `examples` are
    the first few keys, exactly.
    """

    kind: ObjectKind
    state: ObjectState
    objects: int = 0
    size_bytes: int = 0
    usd_a_month: float = 0.0
    oldest: TimestampMs | None = None
    examples: tuple[str, ...] = ()

    def with_others(self, other: Findings) -> Findings:
        """Return these and others of the same kind and state as one."""
        return replace(
            self,
            objects=self.objects + other.objects,
            size_bytes=self.size_bytes + other.size_bytes,
            usd_a_month=self.usd_a_month + other.usd_a_month,
            oldest=min((at for at in (self.oldest, other.oldest) if at is not None), default=None),
            examples=(self.examples + other.examples)[:MAX_EXAMPLES],
        )


@dataclass(frozen=True, slots=True)
class Deletions:
    """What was deleted, as the answers of the store confirmed it, and what was not, by key and with the reason.

    `failed` counts all failures; `failures` names the first of them.
    """

    objects: int = 0
    size_bytes: int = 0
    failed: int = 0
    failures: tuple[tuple[str, str], ...] = ()

    def with_others(self, other: Deletions) -> Deletions:
        """Return these and others as one."""
        return Deletions(
            self.objects + other.objects,
            self.size_bytes + other.size_bytes,
            self.failed + other.failed,
            (self.failures + other.failures)[:MAX_FAILURES],
        )

    def with_failures(self, failures: tuple[tuple[str, str], ...]) -> Self:
        """Add failures, and name as many as there is room for."""
        named = (*self.failures, *failures)[:MAX_FAILURES]
        return replace(self, failed=self.failed + len(failures), failures=named)


@dataclass(frozen=True, slots=True)
class NoncurrentVersions:
    """Versions that are not the latest of their key: deleted objects mostly, which cost until a rule removes them."""

    versions: int = 0
    size_bytes: int = 0
    usd_a_month: float = 0.0
    delete_markers: int = 0


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What one pass over the bucket found; `findings` are by kind, then state, in the order of the table of kinds.

    `is_complete` is false if the pass was stopped; `reached` is the last key that it dealt with. `notes` say what of
    the bucket makes deletions cost more, or do less, than they seem to. `noncurrent` is None if nobody asked for it.
    """

    delete: bool
    findings: tuple[Findings, ...] = ()
    deletions: Deletions = field(default_factory=Deletions)
    is_complete: bool = True
    reached: str | None = None
    capabilities: BucketCapabilities | None = None
    notes: tuple[str, ...] = ()
    noncurrent: NoncurrentVersions | None = None

    @property
    def objects(self) -> int:
        """All objects that were looked at, without unfinished uploads."""
        return sum(one.objects for one in self.findings if one.kind is not ObjectKind.UNFINISHED)

    def total(self, state: ObjectState) -> Findings:
        """Return the sum of one state over all kinds; its kind means nothing."""
        total = Findings(ObjectKind.UNKNOWN, state)
        for one in self.findings:
            if one.state is state:
                total = replace(total.with_others(one), examples=())
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the report in JSON's types."""
        return asdict(self)
