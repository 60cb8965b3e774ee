"""`ConsumerTurns`: the single active consumers of this process among those of all, by a lease.

    #gateway-sessions     member#{session}     a process's heartbeat: it is a `groups.SessionHeartbeat`
    #gateway-consumers    {hash of the names}  whose turn it is (`turns`)

A process with such consumers beats, and serves them only while its lease is certain to last. Whoever has seen a
heartbeat stand still for longer than the lease deletes it, and only then takes its consumers out: the process that
wakes up finds its session over, and begins a new one. No clock is compared with another one.

One task goes round while there are such consumers: it reads the items of their names, then the heartbeats, then
writes what follows, each write conditional on what it read. The order matters: a session is in an item only after its
first beat, so one that is in an item that was read before, and whose heartbeat is not there, is over.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial

from coldstream.errors import ColdstreamError, CorruptionError, LostRaceError, OutcomeUnknownError
from coldstream.flow.boot_clock import boot_time_s
from coldstream.gateway.alone.turn_seat import TurnSeat
from coldstream.gateway.alone.turns import MAX_CONSUMERS, TurnName, Turns, TurnTaker
from coldstream.groups.group_items import HEARTBEATS, MemberBeat, content_of
from coldstream.groups.group_state import GroupSeat
from coldstream.groups.heartbeat import HeartbeatWatch, SessionHeartbeat
from coldstream.groups.table_calls import TableCalls
from coldstream.manifest.state_item import StateItem
from coldstream.store.ports import ManifestTable

_LOG = logging.getLogger(__name__)
SESSIONS = "#gateway-sessions"
CONSUMERS = "#gateway-consumers"
_MEMBER = "gateway"
_AT_A_TIME = 16


class ConsumerTurns:
    """The consumers of this process. For one event loop."""

    def __init__(
        self,
        table: ManifestTable,
        *,
        lease_s: float,
        every_s: float,
        calls: TableCalls = asyncio.to_thread,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self._table = table
        self._lease_s = lease_s
        self._every_s = every_s
        self._calls = calls
        self._clock = clock
        self._seats: list[TurnSeat] = []
        self._numbers = 0
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._beats_at = 0.0
        self._watch = HeartbeatWatch(clock)
        self._begin_session()

    @property
    def session(self) -> str:
        """The session of this process."""
        return self._session

    def may_send(self, seat: TurnSeat) -> bool:
        """Tell whether a consumer is active, and the lease certain to last at this moment."""
        return seat.is_active and self._heartbeat.is_leased()

    def join(
        self, name: TurnName, place: int | None, activate: Callable[[], None], deactivate: Callable[[], Awaitable[None]]
    ) -> TurnSeat:
        """Add a consumer. It is told when its turn has come."""
        self._numbers += 1
        seat = TurnSeat(name, place, self._numbers, activate, deactivate)
        self._seats.append(seat)
        self._wake()
        return seat

    def leave(self, seat: TurnSeat) -> None:
        """Take a consumer out that is served no more."""
        seat.is_gone = True
        seat.is_active = False
        self._wake()

    async def close(self) -> None:
        """Take all consumers out, as far as the table can be told, and end the session."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        for seat in self._seats:
            seat.is_gone, seat.is_active = True, False
        try:
            async with asyncio.timeout(5.0):
                for name in {seat.name for seat in self._seats}:
                    await self._settle(name, await self._read(name), None)
                await self._heartbeat.end()
        except (ColdstreamError, TimeoutError) as err:  # others find out by the lease
            _LOG.warning("could not give up the turns of consumers: %s", err)

    def _wake(self) -> None:
        self._news.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="turns of consumers")

    def _begin_session(self) -> None:
        self._session = secrets.token_hex(16)
        self._heartbeat = SessionHeartbeat(
            self._table,
            SESSIONS,
            GroupSeat(self._session, _MEMBER),
            self._lease_s,
            calls=self._calls,
            clock=self._clock,
        )
        self._beats_at = 0.0

    async def _run(self) -> None:
        while self._seats:
            self._news.clear()
            try:
                await self.step()
            except ColdstreamError as err:
                _LOG.warning("could not look whose turn it is: %s", err)
            except Exception:  # noqa: BLE001  a defect of ours must not end all turns
                _LOG.exception("could not look whose turn it is")
            try:
                async with asyncio.timeout(self._every_s):
                    await self._news.wait()
            except TimeoutError:
                pass
        try:
            await self._heartbeat.end()
        except ColdstreamError as err:
            _LOG.warning("could not end a session: %s", err)
        self._begin_session()
        if self._seats:  # it came while the session ended
            self._running = asyncio.create_task(self._run(), name="turns of consumers")

    async def step(self) -> None:
        """Go round once. Cost: a GetItem for each name, a Query, and writes for what changes. Raises what they do."""
        names = list(dict.fromkeys(seat.name for seat in self._seats))
        items: dict[TurnName, tuple[StateItem | None, Turns]] = {}
        for some in (names[at : at + _AT_A_TIME] for at in range(0, len(names), _AT_A_TIME)):
            await self._beat()
            read = zip(some, await asyncio.gather(*map(self._read_if_whole, some)), strict=True)
            items.update({name: found for name, found in read if found is not None})
        self._seats = [seat for seat in self._seats if seat.name in items or not seat.is_gone]
        living = await self._living()
        for name, found in items.items():
            await self._beat()
            try:
                await self._settle(name, found, living)
            except (LostRaceError, OutcomeUnknownError):
                self._news.set()  # another process was faster: look again at once

    async def _beat(self) -> None:
        if self._clock() < self._beats_at and self._heartbeat.has_begun:
            return
        began = self._clock()
        if not await self._heartbeat.beat():
            _LOG.warning("this process stood still for longer than its lease: its consumers begin anew")
            self._begin_session()
            for seat in self._seats:
                if seat.is_active:
                    self._stop(seat)
            began = self._clock()
            await self._heartbeat.beat()
        self._beats_at = began + self._lease_s / 3

    def _stop(self, seat: TurnSeat) -> None:
        """End a turn. The client may take long to answer, and the heartbeat must not wait for it."""

        async def stop() -> None:
            await seat.deactivate()

        seat.is_active = False
        seat.stopping = asyncio.create_task(stop())
        seat.stopping.add_done_callback(self._stopped)

    def _stopped(self, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and done.exception() is not None:
            _LOG.error("a consumer could not be stopped", exc_info=done.exception())
        self._news.set()

    async def _read(self, name: TurnName) -> tuple[StateItem | None, Turns]:
        item = await self._calls(self._table.state_item, CONSUMERS, name.key)
        if item is None:
            return None, Turns()
        return item, Turns.from_bytes(item.data, source=f"state item {CONSUMERS} {name.key}")

    async def _read_if_whole(self, name: TurnName) -> tuple[StateItem | None, Turns] | None:
        """Return the item of a name, None if it makes no sense: nobody new has its turn then, and the others go on."""
        try:
            return await self._read(name)
        except CorruptionError as err:
            _LOG.error("nobody is told whose turn it is: %s", err, extra={"stream": name.stream, "name_of": name.name})
            return None

    async def _living(self) -> set[str]:
        """Return the sessions that live, after those that are over were taken out. Cost: a Query."""
        items = await self._calls(lambda: list(self._table.state_items(SESSIONS)))
        beats = tuple(_beat_of(item) for item in items if item.key.startswith(HEARTBEATS))
        self._watch.look(beats)
        living = {self._session}
        for beat in beats:
            if beat.session != self._session and self._watch.is_silent(beat.session):
                try:
                    await self._calls(self._table.delete_state, beat.item)
                    continue
                except LostRaceError:
                    pass  # it beats again
            living.add(beat.session)
        return living

    async def _settle(self, name: TurnName, found: tuple[StateItem | None, Turns], living: set[str] | None) -> None:
        """Bring the item of a name to what is true, and tell consumers what follows from it."""
        item, before = found
        seats = [seat for seat in self._seats if seat.name == name]
        # Who leaves while this is written is taken out the next time.
        gone = {seat.number for seat in seats if seat.is_gone}
        after = before if living is None else before.living(living)
        for seat in seats:
            taker = TurnTaker(self._session, seat.number)
            if seat.number in gone:
                after = after.left(taker)
            elif taker not in after.takers and not seat.is_stopping and len(after.takers) < MAX_CONSUMERS:
                after = after.joined(taker, seat.place)
            # Whose turn is over stops, and the client knows, before the item says so.
            if seat.is_active and (after.active != taker or after.due != taker):
                self._stop(seat)
            if after.active == taker != after.due and not seat.is_stopping:
                after = after.released(taker)
        after = after.claimed()
        if after != before:
            await self._write(name, item, after)
        self._seats = [seat for seat in self._seats if not (seat.name == name and seat.number in gone)]
        for seat in seats:
            is_its = after.active == TurnTaker(self._session, seat.number)
            if is_its and not (seat.is_gone or seat.is_active or seat.is_stopping):
                seat.is_active = True
                seat.activate()

    async def _write(self, name: TurnName, item: StateItem | None, turns: Turns) -> None:
        data = turns.to_bytes(name)
        if item is None:
            # An item that was deleted never comes back at a revision that somebody may have read before.
            change = partial(self._table.add_state, StateItem(CONSUMERS, name.key, 1 + secrets.randbits(40), data))
        elif turns.takers:
            change = partial(self._table.put_state, StateItem(CONSUMERS, name.key, item.revision + 1, data))
        else:
            change = partial(self._table.delete_state, item)
        await self._calls(change)


def _beat_of(item: StateItem) -> MemberBeat:
    lease_ms = content_of(item)["lease_ms"]
    assert isinstance(lease_ms, int)
    return MemberBeat(item.key.removeprefix(HEARTBEATS), item.revision, lease_ms / 1000, item)
