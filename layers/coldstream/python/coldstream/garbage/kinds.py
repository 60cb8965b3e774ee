"""All kinds of objects in the bucket, and what proves each of them to be garbage.

No object is garbage because it looks unused. It is garbage if nobody names it, and nobody can come to name it later:
whoever made it is dead, or would be refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.store.parsed_keys import ControlKind, KeyKind, ParsedKey

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS

LONGEST_UPLOAD_MS = DAY_MS
"""No writer takes so long from the last byte of an object to its commit. Lambda ends the upload function after 15
minutes; a compaction commits each object as soon as it is complete, and a day is what a stopped machine gets."""

LONGEST_MULTIPART_MS = 7 * DAY_MS
"""No agent comes back to an unfinished upload after so long; the template's lifecycle rule aborts them then, too."""

LONGEST_EVENT_MS = 15 * DAY_MS
"""No event is delivered after so long: the queues keep one for 14 days, dead letters included, and EventBridge tries
for one."""


class ObjectKind(StrEnum):
    """What an object of the bucket is, by its key."""

    FRAGMENT = "fragment"
    LATER_FRAGMENT = "fragment of a later generation"
    STAGED = "staged segment"
    QUARANTINED = "segment in quarantine"
    QUARANTINE_NOTE = "reason of a quarantine"
    WAL = "object of a write-ahead log"
    SPAN = "object of a recovery log"
    STREAM_CONTROL = "control object of a stream"
    ARCHIVE_CONTROL = "control object of the archive"
    UNFINISHED = "unfinished multipart upload"
    UNKNOWN = "unknown key"
    FOREIGN = "key outside of the prefix"


class ObjectState(StrEnum):
    """What an object turned out to be."""

    IN_USE = "in use"
    REPLACED = "replaced"
    """It has a tombstone: the sweep deletes it when that is due."""

    YOUNG = "young"
    """Nothing names it, but its writer may still be about to."""

    WAITING = "waiting"
    """A staged segment that is not archived yet."""

    HELD = "held"
    """It would be garbage, but a legal hold is on its offsets, or on some after them."""

    GARBAGE = "garbage"
    UNKNOWN = "unknown"
    """No stream of the table, or no key of ours. It is never deleted, but see `GarbageOptions.unknown_streams`."""


@dataclass(frozen=True, slots=True)
class KindRule:
    """One kind: where its objects lie, who makes them, and what proves one to be garbage, None if nothing does.

    `least_age_ms` is what S3's own LastModified must be older than, by AWS's clock.
    """

    kind: ObjectKind
    key: str
    maker: str
    proof: str | None
    least_age_ms: int = LONGEST_UPLOAD_MS


_UNNAMED = (
    "a fence keeps its generation from being committed any more; after it, neither the log, nor a tombstone, nor any of"
    " the last changes names it"
)

KINDS: tuple[KindRule, ...] = (
    KindRule(
        ObjectKind.FRAGMENT,
        "`{hash8}_{incarnation}/data/{first offset}.fragment`",
        "upload",
        _UNNAMED,
    ),
    KindRule(
        ObjectKind.LATER_FRAGMENT,
        "`{hash8}_{incarnation}/data/{first offset}.{generation}.fragment`",
        "compaction, erasure, repair; upload, if the first key was taken or fenced",
        _UNNAMED,
    ),
    KindRule(
        ObjectKind.STAGED,
        "`staging/[{cluster}/]{incarnation}/{first offset}-{next offset}.segment`",
        "agent, announce",
        "all of its offsets are archived or below the floor, or this very copy is in quarantine, or its stream is"
        " deleted for good",
        LONGEST_EVENT_MS,
    ),
    KindRule(
        ObjectKind.QUARANTINED,
        "`quarantine/{incarnation}/{first offset}-{ETag}.segment`",
        "upload",
        "the stream is known, and no record of a quarantine begins at its first offset",
        LONGEST_EVENT_MS,
    ),
    KindRule(
        ObjectKind.QUARANTINE_NOTE,
        "the same with `.json` at the end",
        "upload",
        "as for the segment",
        LONGEST_EVENT_MS,
    ),
    KindRule(
        ObjectKind.WAL,
        "`wal/{writer}/{epoch}/{sequence}`",
        "a process with direct streams",
        "its log is sealed, and it comes after the seal; or it is not among the 32 objects before it, and each of its"
        " batches is archived, of an opening that was recovered, or of a stream deleted for good",
    ),
    KindRule(ObjectKind.SPAN, "`spans/[{cluster}/]{node}/{time}.span`", "agent", None),
    KindRule(ObjectKind.STREAM_CONTROL, "`{hash8}_{incarnation}/control/….json`", "whatever changes the stream", None),
    KindRule(
        ObjectKind.ARCHIVE_CONTROL,
        "`control/{grants,policies,clusters}/….json`, `control/shards/….map`",
        "access, policy, upload, shards",
        None,
    ),
    KindRule(
        ObjectKind.UNFINISHED,
        "any of the keys above",
        "agent, compaction",
        "nobody has completed it for so long",
        LONGEST_MULTIPART_MS,
    ),
    KindRule(ObjectKind.UNKNOWN, "any other key under the prefix", "not coldstream", None),
    KindRule(ObjectKind.FOREIGN, "any key outside of the prefix", "not this archive; it is not even listed", None),
)

_BY_KEY = {
    KeyKind.STAGED: ObjectKind.STAGED,
    KeyKind.QUARANTINED: ObjectKind.QUARANTINED,
    KeyKind.QUARANTINE_NOTE: ObjectKind.QUARANTINE_NOTE,
    KeyKind.WAL: ObjectKind.WAL,
    KeyKind.SPAN: ObjectKind.SPAN,
}
_OF_THE_ARCHIVE = frozenset({ControlKind.GRANT, ControlKind.POLICY, ControlKind.CLUSTER, ControlKind.SHARD_MAP})
_RULES = {rule.kind: rule for rule in KINDS}


def kind_of(key: ParsedKey | None) -> ObjectKind:
    """Return the kind of the object at a key under the prefix; None is a key that does not parse."""
    if key is None:
        return ObjectKind.UNKNOWN
    if key.kind is KeyKind.FRAGMENT:
        return ObjectKind.LATER_FRAGMENT if key.generation else ObjectKind.FRAGMENT
    if key.kind is KeyKind.CONTROL:
        return ObjectKind.ARCHIVE_CONTROL if key.control in _OF_THE_ARCHIVE else ObjectKind.STREAM_CONTROL
    return _BY_KEY[key.kind]


def least_age_ms(kind: ObjectKind, older_than_ms: int) -> int:
    """Return the age from which an object of a kind may be garbage.

    `older_than_ms` is what a caller asks for. It replaces the default for fragments and write-ahead
    logs. For what an event or an agent may
    still come for, it can only be longer.
    """
    rule = _RULES[kind]
    return older_than_ms if rule.least_age_ms == LONGEST_UPLOAD_MS else max(older_than_ms, rule.least_age_ms)
