"""`Tally`: counts what a run finds, kind by kind, on the way to a `GarbageReport`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from coldstream.garbage.kinds import KINDS, ObjectKind, ObjectState
from coldstream.garbage.looked_at import LookedAt
from coldstream.garbage.report import MAX_EXAMPLES, Deletions, Findings
from coldstream.store.prices import storage_usd
from coldstream.units import TimestampMs


class Tally:
    """Counts in constant memory. It goes into a cursor and comes back from it, so that a pass has one report."""

    def __init__(self, findings: Iterable[Findings] = (), deletions: Deletions | None = None) -> None:
        self._findings = {(one.kind, one.state): one for one in findings}
        self.deletions = deletions or Deletions()

    @property
    def objects(self) -> int:
        """All objects counted, without unfinished uploads."""
        return sum(one.objects for one in self._findings.values() if one.kind is not ObjectKind.UNFINISHED)

    def count(self, one: LookedAt, state: ObjectState) -> None:
        """Count an object."""
        listed = one.listed
        usd = storage_usd(listed.size_bytes, listed.storage_class)
        self.add(one.kind, state, one.key, size_bytes=listed.size_bytes, usd=usd, written=listed.last_modified)

    def add(
        self, kind: ObjectKind, state: ObjectState, key: str, *, size_bytes: int, usd: float, written: TimestampMs
    ) -> None:
        """Count something that has a key, a size, a price a month, and a time at which it was written."""
        found = self._findings.get((kind, state), Findings(kind, state))
        self._findings[kind, state] = Findings(
            kind,
            state,
            found.objects + 1,
            found.size_bytes + size_bytes,
            found.usd_a_month + usd,
            written if found.oldest is None else min(found.oldest, written),
            (*found.examples, key) if len(found.examples) < MAX_EXAMPLES else found.examples,
        )

    def add_all(self, other: Tally) -> None:
        """Add what another has counted of other keys."""
        for kind_and_state, one in other._findings.items():
            mine = self._findings.get(kind_and_state)
            self._findings[kind_and_state] = one if mine is None else mine.with_others(one)
        self.deletions = self.deletions.with_others(other.deletions)

    def findings(self) -> tuple[Findings, ...]:
        """Return what was counted, in the order of the table of kinds."""
        kinds, states = [rule.kind for rule in KINDS], list(ObjectState)
        order = sorted(self._findings, key=lambda one: (kinds.index(one[0]), states.index(one[1])))
        return tuple(self._findings[one] for one in order)

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON's types; `of_json` is the inverse."""
        return {"findings": [asdict(one) for one in self.findings()], "deletions": asdict(self.deletions)}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Tally:
        """Read it back."""
        findings = [
            Findings(
                **{
                    **one,
                    "kind": ObjectKind(one["kind"]),
                    "state": ObjectState(one["state"]),
                    "examples": tuple(one["examples"]),
                }
            )
            for one in content["findings"]
        ]
        deletions = content["deletions"]
        failures = tuple((key, reason) for key, reason in deletions["failures"])
        return cls(findings, Deletions(**{**deletions, "failures": failures}))
