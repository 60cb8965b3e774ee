"""Keys of objects, read back: what kind of object lies at a key, and what the key says of it.

Only keys that `keys` makes are read, character for character: no leading zero more, no other hash, nothing decoded. So
an object that looks like one of ours is never taken for it, and never deleted in its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, Offset, TimestampMs


class KeyKind(StrEnum):
    """What lies at a key."""

    FRAGMENT = "fragment"
    STAGED = "staged segment"
    QUARANTINED = "segment in quarantine"
    QUARANTINE_NOTE = "reason of a quarantine"
    CONTROL = "control object"
    WAL = "object of a write-ahead log"
    SPAN = "object of a recovery log"


class ControlKind(StrEnum):
    """What a control object is about."""

    STREAM = "stream"
    FLOOR = "floor"
    HOLD = "hold"
    RELEASE = "release"
    ERASURE = "erasure"
    LOSS = "loss"
    OPENING = "open"
    DIRECT = "direct"
    GRANT = "grants"
    POLICY = "policies"
    CLUSTER = "clusters"
    SHARD_MAP = "shards"


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """What a key says; what it does not say is None.

    `tag` is what a quarantined segment's key has of its ETag. `id` is that of a hold, a release or an erasure, or the
    hash in the key of a grant, a policy, a cluster or a shard map. `next_offset` is that of a staged
    segment or of a loss. `writer`, `epoch` and `sequence` are those of an object of a write-ahead log;
    an opening of a direct stream has an `epoch`, too. `node` is whose an object of a recovery log is, and `at` when it
    was put.
    """

    kind: KeyKind
    incarnation: Incarnation | None = None
    first_offset: Offset | None = None
    next_offset: Offset | None = None
    generation: int | None = None
    cluster: Cluster = NO_CLUSTER
    tag: str | None = None
    control: ControlKind | None = None
    id: str | None = None
    revision: int | None = None
    writer: str | None = None
    epoch: int | None = None
    sequence: int | None = None
    node: str | None = None
    at: TimestampMs | None = None


NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
"""The name of a node in the keys of its recovery log."""

_LIFE = r"(?P<incarnation>[A-Za-z0-9_=-]{1,255})"
_FIRST = r"(?P<first>[0-9]{20})"
_RANGE = _FIRST + r"-(?P<next>[0-9]{20})"
_OWN = r"(?P<hash8>[0-9a-f]{8})_" + _LIFE
_CONTROL = _OWN + r"/control/"

_SHAPES: tuple[tuple[re.Pattern[str], KeyKind, ControlKind | None], ...] = tuple(
    (re.compile(shape), kind, control)
    for shape, kind, control in (
        (_OWN + rf"/data/{_FIRST}(?:\.(?P<generation>[1-9][0-9]{{0,18}}))?\.fragment", KeyKind.FRAGMENT, None),
        (rf"staging/(?:(?P<cluster>[A-Za-z0-9][A-Za-z0-9-]{{0,62}})/)?{_LIFE}/{_RANGE}\.segment", KeyKind.STAGED, None),
        (rf"quarantine/{_LIFE}/{_FIRST}-(?P<tag>[A-Za-z0-9-]{{0,64}})\.segment", KeyKind.QUARANTINED, None),
        (rf"quarantine/{_LIFE}/{_FIRST}-(?P<tag>[A-Za-z0-9-]{{0,64}})\.segment\.json", KeyKind.QUARANTINE_NOTE, None),
        (
            r"wal/(?P<writer>[A-Za-z0-9][A-Za-z0-9-]{0,62})/(?P<epoch>[0-9]{10})/(?P<sequence>[0-9]{20})",
            KeyKind.WAL,
            None,
        ),
        (
            rf"spans/(?:(?P<cluster>[A-Za-z0-9][A-Za-z0-9-]{{0,62}})/)?(?P<node>{NODE.pattern})/(?P<at>[0-9]{{20}})\.span",
            KeyKind.SPAN,
            None,
        ),
        (_CONTROL + r"stream\.json", KeyKind.CONTROL, ControlKind.STREAM),
        (_CONTROL + r"floor\.(?P<revision>[0-9]{20})(?:\.undeletion)?\.json", KeyKind.CONTROL, ControlKind.FLOOR),
        (_CONTROL + rf"loss\.{_RANGE}\.json", KeyKind.CONTROL, ControlKind.LOSS),
        (_CONTROL + r"open\.(?P<epoch>[0-9]{20})\.json", KeyKind.CONTROL, ControlKind.OPENING),
        (_CONTROL + r"direct\.(?P<revision>[0-9]{20})\.json", KeyKind.CONTROL, ControlKind.DIRECT),
        *(
            (_CONTROL + rf"{kind}\.(?P<id>[A-Za-z0-9_-]{{1,128}})\.json", KeyKind.CONTROL, kind)
            for kind in (ControlKind.HOLD, ControlKind.RELEASE, ControlKind.ERASURE)
        ),
        *(
            (rf"control/{kind}/(?P<id>[0-9a-f]{{64}})\.json", KeyKind.CONTROL, kind)
            for kind in (ControlKind.GRANT, ControlKind.POLICY, ControlKind.CLUSTER)
        ),
        (
            r"control/shards/(?P<id>[0-9a-f]{64})\.(?P<revision>[0-9]{20})\.map",
            KeyKind.CONTROL,
            ControlKind.SHARD_MAP,
        ),
    )
)


def parse(key: str) -> ParsedKey | None:
    """Read a key below the archive's prefix; None for any that `keys` does not make."""
    for shape, kind, control in _SHAPES:
        if match := shape.fullmatch(key):
            return _parsed(match.groupdict(), kind, control)
    return None


def _parsed(found: dict[str, str | None], kind: KeyKind, control: ControlKind | None) -> ParsedKey | None:
    incarnation = found.get("incarnation")
    if found.get("hash8") not in {None, sha256((incarnation or "").encode()).hexdigest()[:8]}:
        return None
    first, following = _number(found.get("first")), _number(found.get("next"))
    # The offset after the greatest one is an offset of none, but a range may end there.
    if (first is not None and first > MAX_OFFSET) or (following is not None and following > MAX_OFFSET + 1):
        return None
    generation, at = _number(found.get("generation")), _number(found.get("at"))
    if at is not None and at > MAX_TIMESTAMP_MS:
        return None
    return ParsedKey(
        kind,
        incarnation=None if incarnation is None else Incarnation(incarnation),
        first_offset=None if first is None else Offset(first),
        next_offset=None if following is None else Offset(following),
        generation=generation or 0 if kind is KeyKind.FRAGMENT else None,
        cluster=Cluster(found.get("cluster") or NO_CLUSTER),
        tag=found.get("tag"),
        control=control,
        id=found.get("id"),
        revision=_number(found.get("revision")),
        writer=found.get("writer"),
        epoch=_number(found.get("epoch")),
        sequence=_number(found.get("sequence")),
        node=found.get("node"),
        at=None if at is None else TimestampMs(at),
    )


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
