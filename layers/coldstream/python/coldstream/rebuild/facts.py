"""What the bucket says of a stream beside its fragments."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.manifest.entry import Erasure, Head, Hold, Loss, Quarantine
from coldstream.manifest.stream import StreamId
from coldstream.units import Epoch, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The records of a stream, from its control objects, and the head that its first change writes.

    `base` has revision 0 and no entries: its names, its floor, which is then the tail too, its generation, and whether
    it is deleted. `tail_epoch` is that of the tail, if the log has no entries any more. `quarantines` are in the order
    in which the copies failed, one for each, with its `copies`. If `is_named` is false, no object names the stream, and
    the names are read from the incarnation. `erased` are the first and next offsets of all erasures, also of those
    after the time that is rebuilt: what they took does not come back.
    """

    base: Head
    is_named: bool = True
    tail_epoch: Epoch | None = None
    holds: tuple[Hold, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    losses: tuple[Loss, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()
    erased: tuple[tuple[Offset, Offset], ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What cannot be had, for people."""

    @property
    def stream(self) -> StreamId:
        """The stream."""
        return self.base.stream


@dataclass(frozen=True, slots=True)
class Doubt:
    """An object that the rebuilt table does not name, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What a rebuild made of a stream.

    `fragments` and `data_bytes` are those of the table by now, `written` the fragments that this run wrote.
    `superseded` counts objects that got tombstones. `doubtful` and `unreadable` are the first thousand of each; the
    counts are of all. `stand_ins` are keys of later objects that were taken because what was there at the time is gone.
    If `is_done` is false, the run was stopped, and the next one goes on.
    """

    stream: StreamId
    is_named: bool
    fragments: int = 0
    data_bytes: int = 0
    gaps: int = 0
    written: int = 0
    superseded: int = 0
    doubts: int = 0
    unread: int = 0
    doubtful: tuple[Doubt, ...] = ()
    unreadable: tuple[Doubt, ...] = ()
    stand_ins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    at: TimestampMs | None = None
    is_done: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return {
            "vhost": self.stream.vhost,
            "name": self.stream.name,
            "incarnation": self.stream.incarnation,
            "is_named": self.is_named,
            "done": self.is_done,
            "at": self.at,
            "fragments": self.fragments,
            "written": self.written,
            "data_bytes": self.data_bytes,
            "gap_count": self.gaps,
            "superseded": self.superseded,
            "doubtful_count": self.doubts,
            "doubtful": [{"key": one.key, "reason": one.reason} for one in self.doubtful],
            "unreadable_count": self.unread,
            "unreadable": [{"key": one.key, "reason": one.reason} for one in self.unreadable],
            "stand_ins": list(self.stand_ins),
            "notes": list(self.notes),
        }
