"""What a member does at the table: it beats, it looks at the group, and it changes what is its to change.

Two things go on beside each other: `beat` renews the lease, and `turn` takes part in the group. A turn is one look and
one conditional write at most, which puts all of it into one new state: who is dead leaves, who is new joins, partitions
that nobody has are taken up to the member's share, and those that it is done with are given back.

    owned       may be read: taken in the group's item, and every earlier owner is fenced off from the position
    leaving     above the share: no longer given out, but still this member's, until it is done with (`done_with`)

The coroutines here wait for nothing but the table, and need no event loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coldstream.errors import InvalidInputError, LostRaceError, NotOwnerError
from coldstream.groups.group_items import GROUP, HEARTBEATS, GroupName, GroupView, look_at_group, source_of
from coldstream.groups.group_start import START, GroupStart
from coldstream.groups.group_state import GroupSeat, GroupState
from coldstream.groups.heartbeat import HeartbeatWatch, SessionHeartbeat
from coldstream.groups.positions import GroupPositions
from coldstream.groups.table_calls import TableCalls
from coldstream.manifest.state_item import StateItem
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset


def random_session() -> str:
    """Return a name that no other session has."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """A partition that a member owns: since which epoch, and where the group was when it took it, None if nowhere."""

    epoch: int
    committed: Offset | None


class GroupSession:
    """One member of a group, from session to session. For one caller; only `beat`, `turn` and `commit` may overlap."""

    def __init__(
        self,
        table: ManifestTable,
        group: GroupName,
        member: str,
        numbers: Collection[int],
        *,
        lease_s: float,
        calls: TableCalls,
        clock: Callable[[], float],
        new_session: Callable[[], str] = random_session,
    ) -> None:
        self._table = table
        self._group = group
        self._partition = group.partition
        self._member = member
        self._numbers = frozenset(numbers)
        self._earlier: frozenset[int] = frozenset()
        self._lease_s = lease_s
        self._calls = calls
        self._clock = clock
        self._new_session = new_session
        self._members = 1
        self._watch = HeartbeatWatch(clock)
        self._begin()

    def _begin(self) -> None:
        self._seat = GroupSeat(self._new_session(), self._member)
        self._heartbeat = SessionHeartbeat(
            self._table, self._partition, self._seat, self._lease_s, calls=self._calls, clock=self._clock
        )
        self._positions = GroupPositions(self._table, self._partition, self._group.group, calls=self._calls)
        self._owned: dict[int, OwnedPartition] = {}
        self._leaving: dict[int, int] = {}
        self._done: set[int] = set()
        self._has_joined = False

    @property
    def session(self) -> str:
        """The session that the member has now."""
        return self._seat.session

    @property
    def owned(self) -> Mapping[int, OwnedPartition]:
        """The partitions that may be read, by number."""
        return MappingProxyType(self._owned)

    @property
    def leaving(self) -> frozenset[int]:
        """The partitions that the member is to stop with, to commit, and to be done with."""
        return frozenset(self._leaving)

    @property
    def has_heartbeat(self) -> bool:
        """Tell whether others can see that the session lives."""
        return self._heartbeat.has_begun

    def owns(self, number: int) -> bool:
        """Tell whether a partition is certain to be this member's alone at this moment."""
        return number in self._owned and self._heartbeat.is_leased()

    def use_partitions(self, numbers: Collection[int], earlier: Collection[int] = ()) -> None:
        """Take part in these partitions from the next turn on, and in no others.

        Those that are `earlier` are written no more. They are shared among themselves: once read, they are no load.
        """
        self._numbers, self._earlier = frozenset(numbers), frozenset(earlier) & frozenset(numbers)

    def done_with(self, number: int) -> None:
        """Say that a partition that is leaving is stopped and committed: the next turn gives it back."""
        if number in self._leaving:
            self._done.add(number)

    def next_silence_s(self) -> float:
        """Return how long it is until some heartbeat is silent, unless it beats."""
        return self._watch.next_silence_s()

    async def beat(self) -> None:
        """Renew the lease; begin another session if this one was removed. Cost: one PUT.

        Raises UnavailableError, OutcomeUnknownError, LostRaceError.
        """
        heartbeat = self._heartbeat
        if not await heartbeat.beat():
            if heartbeat is self._heartbeat:
                self._begin()
            await self._heartbeat.beat()

    async def turn(self) -> bool:
        """Look at the group, and change it if need be; return whether to look again soon. Cost: one Query, if quiet.

        A change costs one PUT, a dead member one DELETE, partitions gained one Query and one transaction for ten.
        Raises UnavailableError, OutcomeUnknownError; LostRaceError if others were faster: look again.
        InvalidInputError if another process takes part as the same member, or the group is full.
        """
        seat = self._seat
        view = await self._calls(look_at_group, self._table, self._partition, members=self._members)
        self._members = len(view.beats)
        self._watch.look(view.beats)
        dead = await self._dead(view)
        if seat is not self._seat or not self._heartbeat.has_begun:
            return True  # the session was removed meanwhile, or has no heartbeat by which others know that it lives
        if self._has_joined and not view.state.has(seat.session):
            self._begin()
            return True
        changed = self._changed(view.state, dead)
        if changed is None:
            return False
        if changed != view.state:
            item = StateItem(self._partition, GROUP, view.revision + 1, changed.to_bytes())
            if item.revision == 1:
                await self._calls(self._group.register, self._table)
            await self._calls(self._table.put_state, item)
        return await self._adopt(seat, changed)

    async def leave(self) -> None:
        """Free all partitions at once, and end the session. Cost: one GetItem, one PUT and one DELETE.

        Raises LostRaceError if others were faster: try again. UnavailableError, OutcomeUnknownError: the lease frees
        them, unless it is tried again.
        """
        seat, heartbeat = self._seat, self._heartbeat
        self._owned, self._leaving = {}, {}
        item = await self._calls(self._table.state_item, self._partition, GROUP)
        if item is not None:
            state = GroupState.from_bytes(item.data, source=source_of(item))
            if state.has(seat.session):
                left = state.without(seat.session).to_bytes()
                await self._calls(self._table.put_state, StateItem(self._partition, GROUP, item.revision + 1, left))
        await heartbeat.end()

    async def group_start(self, now: GroupStart) -> GroupStart:
        """Return where the group began; `now` if it begins now. Cost: one GetItem, the first time one PUT more.

        Raises UnavailableError, OutcomeUnknownError; LostRaceError if others were faster: try again.
        """
        item = await self._calls(self._table.state_item, self._partition, START)
        if item is None:
            item = now.to_item(self._partition)
            await self._calls(self._table.put_state, item)
        return GroupStart.from_item(item)

    async def commit(self, number: int, offset: Offset) -> None:
        """Commit the offset from which on a partition is not done. Cost: one PUT; none if it is no greater.

        Raises NotOwnerError; UnavailableError, OutcomeUnknownError, LostRaceError.
        """
        owned = self._owned.get(number)
        epoch = self._leaving.get(number) if owned is None else owned.epoch
        if epoch is None:
            raise NotOwnerError(self._group.group, number)
        await self._positions.commit(number, epoch, offset)

    async def committed(self) -> dict[int, Offset]:
        """Return what the group has committed, by number. Cost: one Query."""
        return await self._positions.committed()

    async def _dead(self, view: GroupView) -> list[str]:
        """Return the sessions that can never beat again; make sure of each."""
        present = {one.session for one in view.beats}
        dead = []
        for one in view.beats:
            if one.session != self._seat.session and self._watch.is_silent(one.session):
                try:
                    # Exactly as it was seen: a beat since then makes this fail, and no beat can come after it.
                    await self._calls(self._table.delete_state, one.item)
                except LostRaceError:
                    continue
                dead.append(one.session)
        for seat in view.state.seats:
            # Items are not read as of one moment, so a look alone does not prove that one is missing.
            if seat.session not in present and seat.session != self._seat.session:
                key = f"{HEARTBEATS}{seat.session}"
                if await self._calls(self._table.state_item, self._partition, key) is None:
                    dead.append(seat.session)
        return dead

    def _changed(self, state: GroupState, dead: list[str]) -> GroupState | None:
        """Return the state as it should be; None if the member has to wait for its seat."""
        session = self._seat.session
        for one in dead:
            state = state.without(one)
        if not state.has(session):
            other = state.seat_of(self._member)
            if other is not None:
                if self._watch.is_alive(other.session):
                    raise InvalidInputError("member", f"{self._member!r} takes part in {self._group} already")
                return None
            state = state.joined(self._seat)
        # Not what it is still to be done with: only it may say so.
        state = state.released(session, self._done).with_partitions(self._numbers)
        for numbers in self._shared_numbers():
            state = state.taken(session, numbers)
        return state

    def _shared_numbers(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the partitions in two sets, of each of which every member has its share."""
        return self._numbers - self._earlier, self._earlier

    async def _adopt(self, seat: GroupSeat, state: GroupState) -> bool:
        """Own what the state says; return whether to look again soon."""
        if seat is not self._seat:
            return True
        self._has_joined = True
        epochs = state.epochs(seat.session)
        self._leaving = {number: epoch for number, epoch in self._leaving.items() if epochs.get(number) == epoch}
        self._done &= self._leaving.keys()
        kept = {number: one for number, one in self._owned.items() if epochs.get(number) == one.epoch}
        surplus = epochs.keys() - self._numbers
        for numbers in self._shared_numbers():
            surplus |= state.surplus(seat.session, numbers, self._leaving) & numbers
        self._leaving |= {number: epochs[number] for number in surplus}
        self._owned = {number: one for number, one in kept.items() if number not in self._leaving}
        gained = {n: e for n, e in epochs.items() if n not in self._leaving and n not in self._owned}
        if gained:
            starts = await self._positions.raise_epochs(gained)
            if seat is self._seat:
                self._owned |= {number: OwnedPartition(gained[number], start) for number, start in starts.items()}
        return False
