"""A member of a group, in an event loop: it keeps its lease, and says which partitions it owns.

Costs: while nothing changes, each third of a lease one PUT, of about 150 bytes, and one Query over the group's item and
the heartbeats, however many partitions there are: with leases of 30 s that is 0.2 requests a member and second. A
commit is one PUT.

When a member dies, its partitions are with others within two leases: at most a third until its last beat is seen, 1.25
in which it is watched, and a third until those that take them have their turn. A member that leaves frees its
partitions at once, and they are taken within a third of a lease.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from coldstream.errors import ColdstreamError, LostRaceError, OutcomeUnknownError, UnavailableError
from coldstream.flow.boot_clock import boot_time_s
from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.groups.group_items import GroupName
from coldstream.groups.group_start import GroupStart
from coldstream.groups.session import GroupSession, OwnedPartition
from coldstream.retry import Backoff
from coldstream.units import Offset

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

BEATS_A_LEASE = 3
LEAVE_TIMEOUT_S = 5.0
COMMITS_AT_ONCE = 2
AGAIN = (LostRaceError, OutcomeUnknownError, UnavailableError)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """What a member owns, by number, and what it is to stop with, to commit, and to be `done_with`."""

    partitions: Mapping[int, OwnedPartition] = field(default_factory=dict)
    leaving: frozenset[int] = frozenset()


class GroupMember:
    """Takes part in a group, within its context, with the partitions `numbers` of the sharded stream `name`.

    For one event loop; `owns` may be called from any thread.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        vhost: str,
        name: str,
        numbers: Collection[int] = (),
        *,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self.name = GroupName(vhost, name, group.name)
        self.member = group.member_name()
        # Threads of its own: a lease must not end because a program keeps those of the event loop busy.
        self._threads = ThreadPoolExecutor(2 + COMMITS_AT_ONCE, thread_name_prefix="coldstream-group")
        self._session = GroupSession(
            group.open_table(),
            self.name,
            self.member,
            numbers,
            lease_s=group.lease_s,
            calls=self._call,
            clock=clock,
        )
        self._interval_s = group.lease_s / BEATS_A_LEASE
        self._commits = asyncio.Semaphore(COMMITS_AT_ONCE)
        self._beat_now = asyncio.Event()
        self._turn_now = asyncio.Event()
        self._news = asyncio.Event()
        self._given = GroupAssignment()
        self._failure: Exception | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Begin to take part; `assignments` tells when the member owns something."""
        self._tasks = [
            asyncio.create_task(self._guarded(self._keep_beating)),
            asyncio.create_task(self._guarded(self._take_turns)),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Leave, which frees the partitions at once; if the table does not answer within 5 s, the lease frees them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await asyncio.wait_for(self._leave(), LEAVE_TIMEOUT_S)
        except (ColdstreamError, TimeoutError) as failed:
            log.warning("%s: member %r could not leave, its lease will end: %s", self.name, self.member, failed)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _leave(self) -> None:
        """Leave, however many others do so at the same time, of whom one at a time succeeds."""
        backoff = Backoff(0.02, 0.5)
        while True:
            try:
                return await self._session.leave()
            except LostRaceError:
                await asyncio.sleep(backoff.next_delay_s())

    async def assignments(self) -> AsyncIterator[GroupAssignment]:
        """Yield what the member owns, at each change; what came in between, and is past, is left out.

        What is in `leaving` stays this member's until `done_with`; all else that is no longer there is lost.

        Raises InvalidInputError if another process is the same member, or the group is full; AccessDeniedError,
        CorruptionError. A table that is away is tried again for ever.
        """
        given = GroupAssignment()
        while True:
            self._news.clear()
            if self._failure is not None:
                raise self._failure
            if self._given != given:
                given = self._given
                yield given
            else:
                await self._news.wait()

    def owns(self, number: int) -> bool:
        """Tell whether a partition is certain to be this member's alone now; ask before each message. No request.

        False once the lease may be over, even if nobody has taken the partition: it may be True again later.
        """
        return self._failure is None and self._session.owns(number)

    def epoch(self, number: int) -> int | None:
        """Return the epoch in which the member owns a partition, None if it does not."""
        owned = self._session.owned.get(number)
        return None if owned is None else owned.epoch

    def done_with(self, number: int) -> None:
        """Say that nothing of a partition that is leaving is given out or committed any more; it is given back."""
        self._session.done_with(number)
        self._turn_now.set()

    def use_partitions(self, numbers: Collection[int], earlier: Collection[int] = ()) -> None:
        """Take part in these partitions, and in no others; those of them that are written no more are `earlier`."""
        self._session.use_partitions(numbers, earlier)
        self._turn_now.set()

    async def group_start(self, now: GroupStart) -> GroupStart:
        """Return where the group began; `now` if it begins now. A table that is away is tried again for ever."""
        pace = _RetryPace(f"{self.name}: start", self._interval_s)
        found = now

        async def ask() -> None:
            nonlocal found
            found = await self._session.group_start(now)

        while (delay_s := await pace.delay_s(ask)) is not None:  # noqa: ASYNC110  the table tells nobody
            await asyncio.sleep(delay_s)
        return found

    async def commit(self, number: int, offset: Offset) -> None:
        """Commit the offset after the last message that is done; a smaller one than before changes nothing.

        Cost: one PUT. Raises NotOwnerError if the partition is, by now, another's; LostRaceError, OutcomeUnknownError,
        UnavailableError: it may be repeated.
        """
        async with self._commits:
            await self._session.commit(number, offset)

    async def committed(self) -> Mapping[int, Offset]:
        """Return what all members have committed, by number. Cost: one Query. Raises UnavailableError."""
        async with self._commits:
            return await self._session.committed()

    async def _keep_beating(self) -> None:
        pace = _RetryPace(f"{self.name}: heartbeat", self._interval_s)
        while True:
            begun = asyncio.get_running_loop().time()
            delay_s = await pace.delay_s(self._session.beat)
            if delay_s is None:
                # Counted from the beat's start, as the lease is.
                delay_s = self._jittered() - (asyncio.get_running_loop().time() - begun)
                self._tell()
            await _pause(self._beat_now, delay_s)

    async def _take_turns(self) -> None:
        pace = _RetryPace(f"{self.name}: turn", self._interval_s)
        while True:
            again = True

            async def turn() -> None:
                nonlocal again
                again = await self._session.turn()

            delay_s = await pace.delay_s(turn)
            self._tell()
            if not self._session.has_heartbeat:
                self._beat_now.set()
            if delay_s is None:
                due_s = self._interval_s / 20 if again else self._session.next_silence_s()
                delay_s = min(self._jittered(), max(due_s, self._interval_s / 20))
            await _pause(self._turn_now, delay_s)

    def _tell(self) -> None:
        self._given = GroupAssignment(dict(self._session.owned), self._session.leaving)
        self._news.set()

    def _jittered(self) -> float:
        return random.uniform(0.9, 1) * self._interval_s  # noqa: S311  jitter, not a secret

    async def _call(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **kwargs))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as err:  # noqa: BLE001  `assignments` raises it
            self._failure = self._failure or err
            self._news.set()


class _RetryPace:
    """Repeats what fails for now, and logs once when it begins to fail and once when it is well again."""

    def __init__(self, what: str, interval_s: float) -> None:
        self._what = what
        self._backoff = Backoff(interval_s / 20, interval_s / 2)
        self._is_away = False

    async def delay_s(self, work: Callable[[], Awaitable[None]]) -> float | None:
        """Do it; return the pause before it is tried again, None if it succeeded. Raises what will not pass."""
        try:
            await work()
        except AGAIN as err:
            if not err.retryable:
                raise
            if not isinstance(err, LostRaceError) and not self._is_away:  # a lost race is business as usual
                self._is_away = True
                log.warning("%s: %s; trying again", self._what, err)
            return self._backoff.next_delay_s()
        if self._is_away:
            self._is_away = False
            log.info("%s: it is back", self._what)
        self._backoff.reset()
        return None


async def _pause(event: asyncio.Event, delay_s: float) -> None:
    """Wait for an event, or until the delay is over."""
    try:
        await asyncio.wait_for(event.wait(), max(0.0, delay_s))
    except TimeoutError:
        pass
    finally:
        event.clear()
