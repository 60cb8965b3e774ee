"""What is wrong with streams: what their heads tell of all, and what the items of the most suspect ones tell.

Heads cost a hundredth of a request each, so all are read. Items cost requests of their own: they are read of a bounded
number of streams, first of those whose heads say that there is something to find.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from coldstream.browse.health_report import HealthFinding, HealthLevel
from coldstream.browse.meanings import meaning_of
from coldstream.manifest.entry import Head
from coldstream.operate.diagnosis import ArchivePart
from coldstream.operate.stream_health import (
    MAX_NAMED,
    StreamTrouble,
    command_arguments,
    head_troubles,
    item_troubles,
)
from coldstream.store.ports import ManifestReads
from coldstream.units import TimestampMs, format_timestamp

QUIET_MS = 24 * 3600 * 1000
"""A stream that got nothing for so long is told as quiet."""

MAX_LOOKS = 200
LOOK_SECONDS = 20.0
"""Streams whose items are read, and how long that may take."""

_LEVELS = {
    "losses": HealthLevel.WARN,
    "holds": HealthLevel.INFO,
    "quiet streams": HealthLevel.INFO,
}
"""Of kinds that are no trouble of the doctor's, which are all WARN."""


@dataclass(frozen=True, slots=True)
class LookBounds:
    """How much is read of streams' items, and from when on a stream is quiet."""

    max_looks: int = MAX_LOOKS
    seconds: float = LOOK_SECONDS
    quiet_ms: int = QUIET_MS


def stream_findings(
    table: ManifestReads,
    heads: Sequence[Head],
    now: TimestampMs,
    bounds: LookBounds,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[HealthFinding]:
    """Yield the findings about streams, MAX_NAMED of a kind at most, and how many more there are.

    Cost: a Query for each stream that is looked at, and one more each for its gaps and its erasures.
    """
    found: dict[str, list[StreamTrouble]] = defaultdict(list)
    for head in heads:
        for trouble in (*head_troubles(head, now), *_of_head(head, now, bounds.quiet_ms)):
            found[trouble.kind].append(trouble)
    looked = 0
    deadline = clock() + bounds.seconds
    for head in sorted(heads, key=_suspicion):
        if looked >= bounds.max_looks or (looked and clock() >= deadline):
            break
        looked += 1
        for trouble in item_troubles(table, head, now):
            found[trouble.kind].append(trouble)
    for kind, troubles in found.items():
        yield from _named(kind, troubles)
    what = "streams looked at"
    said = f"the heads of {len(heads)} streams, and the items of {looked}"
    level = HealthLevel.OK if looked == len(heads) else HealthLevel.INFO
    todo = None if looked == len(heads) else "coldstream doctor, which looks at the items of all"
    yield HealthFinding(ArchivePart.STREAMS, level, what, said, meaning_of(ArchivePart.STREAMS, what), todo)


def _of_head(head: Head, now: TimestampMs, quiet_ms: int) -> Iterable[StreamTrouble]:
    """Yield what a head tells that is worth knowing, and no trouble of the doctor's."""
    stream, arguments = head.stream, command_arguments(head.stream)
    if head.is_deleted:
        return
    if head.losses:
        found = f"{head.losses} losses were announced"
        yield StreamTrouble(stream, "losses", found, f"coldstream describe {arguments}")
    if head.holds:
        yield StreamTrouble(stream, "holds", f"{head.holds} legal holds", f"coldstream hold list {arguments}")
    is_sealed = head.appender is not None and head.appender.is_sealed
    last = head.greatest_timestamp
    if last is not None and head.first_offset is not None and last + quiet_ms <= now and not is_sealed:
        found = f"its last archived chunk is of {format_timestamp(last)}"
        todo = "coldstream agent status, on the broker of the stream"
        yield StreamTrouble(stream, "quiet streams", found, todo)


def _suspicion(head: Head) -> tuple[bool, bool, str]:
    """Order streams: first those whose items tell more than the head, deleted ones last."""
    return not (head.gaps or head.erasures), head.is_deleted, head.stream.incarnation


def _named(kind: str, troubles: Sequence[StreamTrouble]) -> Iterator[HealthFinding]:
    level, meaning = _LEVELS.get(kind, HealthLevel.WARN), meaning_of(ArchivePart.STREAMS, kind)
    for one in troubles[:MAX_NAMED]:
        found = f"{one.stream}: {one.found}"
        yield HealthFinding(ArchivePart.STREAMS, level, kind, found, meaning, one.todo, one.stream)
    if (more := len(troubles) - MAX_NAMED) > 0:
        yield HealthFinding(ArchivePart.STREAMS, level, kind, f"and {more} streams more", meaning)
