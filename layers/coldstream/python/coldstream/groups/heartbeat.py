"""A session's heartbeat, and the lease that follows from it.

No clock is compared with another one. A session's lease lasts `lease_s` by its own clock, from the *start* of its last
beat that succeeded. Another member that has seen no new beat for longer than that, by its own clock and from the end of
its first look at the last one, deletes the heartbeat's item as it saw it. So the session has either beaten before, and
the deletion fails, or can never beat again, and its lease is over by then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from coldstream.errors import LostRaceError
from coldstream.groups.group_items import HEARTBEATS, VERSION, MemberBeat
from coldstream.groups.group_state import GroupSeat
from coldstream.groups.table_calls import TableCalls
from coldstream.manifest.state_item import StateItem
from coldstream.store.ports import ManifestTable


class SessionHeartbeat:
    """The heartbeat of one session, which only it writes; others only delete it."""

    def __init__(
        self,
        table: ManifestTable,
        partition: str,
        seat: GroupSeat,
        lease_s: float,
        *,
        calls: TableCalls,
        clock: Callable[[], float],
    ) -> None:
        content = {"version": VERSION, "member": seat.member, "lease_ms": round(lease_s * 1000)}
        self._data = json.dumps(content).encode()
        self._table = table
        self._partition = partition
        self._key = f"{HEARTBEATS}{seat.session}"
        self._lease_s = lease_s
        self._calls = calls
        self._clock = clock
        self._beats = 0
        self._begun: float | None = None
        self._leased_until: float | None = None

    @property
    def has_begun(self) -> bool:
        """Tell whether the item is written."""
        return self._beats > 0

    def is_leased(self) -> bool:
        """Tell whether the lease is certain to last at this moment."""
        return self._leased_until is not None and self._clock() < self._leased_until

    async def beat(self) -> bool:
        """Beat once; return False if others have removed the session: it never beats again.

        Cost: one PUT; one GetItem more after a lost answer. Raises UnavailableError, OutcomeUnknownError, LostRaceError
        if it is not known to have succeeded: then beat again.
        """
        if self._begun is None:
            # A beat that is tried again may have succeeded the first time, and others then count from there.
            self._begun = self._clock()
        item = StateItem(self._partition, self._key, self._beats + 1, self._data)
        try:
            await self._calls(self._table.put_state, item)
        except LostRaceError:
            there = await self._calls(self._table.state_item, self._partition, self._key)
            if there is None:
                self._leased_until = None
                return False
            if there.revision != item.revision:
                raise  # not written yet: another transaction was in the way
        self._beats = item.revision
        self._leased_until = self._begun + self._lease_s
        self._begun = None
        return True

    async def end(self) -> None:
        """End the lease, and delete the item. Cost: one DELETE. Raises UnavailableError."""
        self._leased_until = None
        if self._beats:
            item = StateItem(self._partition, self._key, self._beats, self._data)
            # A beat on its way was faster: its item has no seat, and others delete it when it is silent.
            with suppress(LostRaceError):
                await self._calls(self._table.delete_state, item)


@dataclass(frozen=True, slots=True)
class SeenBeat:
    """How often a heartbeat had beaten, since when by the watcher's clock, and how many new beats came before."""

    beats: int
    since: float
    patience_s: float
    rises: int


class HeartbeatWatch:
    """What one member has seen of the others' heartbeats, by its own clock."""

    PATIENCE: ClassVar[float] = 1.25
    """Leases that a heartbeat may stand still. What is more than one allows for clocks that differ in rate."""

    ALIVE: ClassVar[int] = 3
    """New beats, each seen by itself, that prove a process to live: one may be on its way when it dies, and a first
    look may be older than the last beat."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, SeenBeat] = {}

    def look(self, beats: tuple[MemberBeat, ...]) -> None:
        """Take note of heartbeats that were read; call it after the answer came, never before."""
        now = self._clock()
        seen: dict[str, SeenBeat] = {}
        for one in beats:
            before = self._seen.get(one.session)
            if before is None or before.beats != one.beats:
                rises = 0 if before is None else before.rises + 1
                before = SeenBeat(one.beats, now, one.lease_s * self.PATIENCE, rises)
            seen[one.session] = before
        self._seen = seen

    def is_silent(self, session: str) -> bool:
        """Tell whether a heartbeat has stood still for so long that its lease is over."""
        seen = self._seen.get(session)
        return seen is not None and self._clock() - seen.since > seen.patience_s

    def is_alive(self, session: str) -> bool:
        """Tell whether a heartbeat goes on."""
        return session in self._seen and self._seen[session].rises >= self.ALIVE

    def next_silence_s(self) -> float:
        """Return how long it is until the first of them is silent, unless they beat; infinity if there is none."""
        now = self._clock()
        return min((seen.since + seen.patience_s - now for seen in self._seen.values()), default=float("inf"))
