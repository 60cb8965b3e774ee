"""What a consumer knows when it is told of a gap, or begins later than its stream: held against what was so then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from coldstream.consumer.catchup import ARCHIVE_WAIT_S, GAP_WAIT_S
from coldstream.manifest.entry import Gap
from coldstream.manifest.state import ManifestState
from coldstream.resolve.answer import Answer, RangesQuery
from coldstream.resolve.attach import REMOVED
from coldstream.resolve.resolver import Resolver
from coldstream.units import Offset
from tests.simulation.watched import WatchedTable

if TYPE_CHECKING:
    from tests.simulation.node_source import NodeSource

CLOCK_S = 1.0
"""By so much a wait may seem shorter: it is measured from when its consumer was given something, or left a node."""


DELETED_S = 2 * ARCHIVE_WAIT_S
"""So long a deletion counts as what may have ended a consumer."""


class AskedResolver:
    """A resolver as one consumer asks it. `seen` is what was archived as it answered last."""

    def __init__(self, resolver: Resolver, table: WatchedTable) -> None:
        self.seen: ManifestState | None = None
        self._resolver = resolver
        self._watched = table

    def was_deleted(self) -> bool:
        """Tell whether the stream was deleted since a consumer that is at its end by now began to wait for it."""
        return self._watched.was_deleted_since(time.monotonic() - DELETED_S)

    def ranges(self, query: RangesQuery) -> Answer:
        """Answer as the resolver does."""
        self.seen = self._watched.state
        return self._resolver.ranges(query)


def problem_of(gap: Gap, seen: ManifestState | None, source: NodeSource, moved_at: float) -> str:
    """Say why a consumer may not be told of this gap; "" if it may.

    It may if the archive had nothing of it as the consumer asked last, and the node that it asked last did not, either;
    and if the archive knew why, or the consumer has waited. `moved_at` is when it was given something last.

    A gap need not stay one: another node's agent may fill it later.
    """
    if seen is None:
        return "the archive was not asked"
    for entry in seen.entries.values():
        if entry.first_offset < gap.next_offset and gap.first_offset < entry.next_offset:
            return f"{entry.first_offset} to {entry.next_offset} was archived"
    if source.begins_at is None or source.begins_at <= gap.first_offset:
        return f"its node begins at {source.begins_at}"
    if gap.reason is None:
        waited_s = time.monotonic() - max(moved_at, source.left_at)
        return "" if waited_s >= GAP_WAIT_S - CLOCK_S else f"it waited for {waited_s:.1f} s"
    if gap.reason == REMOVED:
        floor = seen.head.floor if seen.head is not None else 0
        return "" if gap.first_offset < floor else f"nothing was removed from {floor} on"
    known = [one for one in seen.missing.values() if one.first_offset < gap.next_offset]
    return "" if any(gap.first_offset < one.next_offset for one in known) else "nobody recorded it"


def problem_of_beginning(passed_by: list[Offset], seen: ManifestState | None, source: NodeSource) -> str:
    """Say why a consumer that starts before all that is archived may not pass these chunks by; "" if it may.

    It may if the archive had none of them as it was asked last, nor its node, as it began to deliver or was asked.
    """
    first = source.first_here
    had = [] if first is None else [offset for offset in passed_by if offset >= first]
    if had:
        return f"its node had {had[0]} and what follows"
    is_there = seen is not None and seen.head is not None and not seen.head.is_deleted
    entries = seen.entries.values() if seen is not None and is_there else ()
    archived = [one for one in passed_by if any(entry.first_offset <= one < entry.next_offset for entry in entries)]
    return f"{archived[0]} was archived" if archived else ""
