"""One stream under examination: what was found, and how a suspicion becomes a finding, and a finding is mended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from coldstream.errors import ConflictError, OutcomeUnknownError
from coldstream.manifest.change import Change, PutLoss
from coldstream.manifest.entry import JournalKind, Loss
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.scrub.damage import Finding
from coldstream.scrub.reads import ScrubReads
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble
from coldstream.units import TimestampMs

Judge = Callable[[Snapshot], Iterable[Trouble]]
"""Says what is wrong with items of one moment."""

Plan = Callable[[Snapshot, Trouble], Change | None]
"""Plans what mends a damage, from the items of that moment; None if nothing does."""

LOOKS = 2
"""So many looks at an object have to find a damage in it: one answer of S3 may be wrong, or changed on its way."""

MAX_REPAIRS = 8
"""Changes that mend one place: after each, it is looked at again."""


def no_repair(_: Snapshot, __: Trouble) -> Change | None:
    """Leave a damage as it is."""
    return None


@dataclass
class Examiner:
    """Collects the findings of one stream. `unsettled` counts suspicions that no moment could be found for."""

    reads: ScrubReads
    stream: StreamId
    now: Callable[[], TimestampMs]
    deep: bool = False
    repair: bool = False
    take_again: int = 0
    """How many entries more may be removed, because their objects are damaged."""
    note_loss: Callable[[Loss], None] = lambda _: None
    """Writes a loss to the bucket, before its change: what protects comes first."""
    earlier: Sequence[Finding] = ()
    """What was found before, as far as it is kept: none of it is taken down again."""
    findings: list[Finding] = field(default_factory=list)
    """What was found since the run last took it, and of that what was mended."""
    mended: list[Finding] = field(default_factory=list)
    unsettled: int = 0
    fragments: int = 0
    unread: int = 0
    is_proven: bool = False
    """Whether an object of the stream was found that is as the manifest says: the bucket is the archive's."""
    notes: set[str] = field(default_factory=set)
    """What a person should know about repairs that were not done."""

    @property
    def incarnation(self) -> Incarnation:
        """The stream's incarnation."""
        return self.stream.incarnation

    def record(self, trouble: Trouble) -> Finding:
        """Take a damage down, once."""
        finding = trouble.finding(self.stream)
        if finding not in self.findings and finding not in self.earlier:
            self.findings.append(finding)
        return finding

    def confirm(self, keys: Sequence[str], judge: Judge, plan: Plan = no_repair) -> Snapshot | None:
        """Judge items as of one moment, take down what is wrong, and mend it if repairs are on.

        Return the items as they are in the end, None if no moment was found. Cost: one request for each look, and one
        for each repair.
        """
        for _ in range(MAX_REPAIRS):
            snapshot = self.reads.at_once(self.incarnation, keys)
            if snapshot is None:
                self.unsettled += 1
                return None
            troubles = list(judge(snapshot))
            found = [self.record(trouble) for trouble in troubles]
            if not self.repair:
                return snapshot
            changes = ((plan(snapshot, trouble), finding) for trouble, finding in zip(troubles, found, strict=True))
            change, finding = next(((one, of) for one, of in changes if one is not None), (None, None))
            if change is None or finding is None:
                return snapshot
            for write in change.of(PutLoss):
                self.note_loss(write.loss)
            try:
                self.reads.apply(change)
            except (ConflictError, OutcomeUnknownError):
                continue  # whether it happened shows in the next look
            if change.event.kind is JournalKind.RANGE_REMOVED:
                self.take_again -= 1
                if not self.take_again:
                    self.notes.add("as many entries were removed as this run may: --max-removed permits more")
            self.mended.append(finding)
        return snapshot
