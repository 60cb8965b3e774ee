"""Two to four processes append to the same direct streams, die, freeze, hear nothing: one seed, one history a stream.

    play = Play(7)
    histories = play.run()

The processes run the shipped code on one table and one bucket in memory, far away (`faulty_stores`), in simulated time
(`virtual_loop`). Each has a clock of its own, which may be hours off. Every opening, append, read and look at the tail
is recorded (`recorder`), as is what was never answered. Things go wrong (`nemesis`). At the end all is well again, and
one more process opens the streams and reads them.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from unittest.mock import patch

from coldstream.errors import ColdstreamError, ExpiredEpochError
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.streams.archive import DirectArchive
from coldstream.streams.client import OpenMode, StreamClient
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.options import WalOptions
from coldstream.units import Offset, TimestampMs
from tests.linearizability.faulty_stores import Network, Remote
from tests.linearizability.history import History
from tests.linearizability.nemesis import Host, haunt
from tests.linearizability.recorder import UNKNOWN, NumberingPublisher, Opened, PlayError, Recorder
from tests.linearizability.virtual_loop import Process, VirtualLoop
from tests.linearizability.watching import WatchedTable, watched, window_of

KEYS = Keys("archive/")
NOW_MS = 1_763_700_000_000
HOUR_MS = 3_600_000
LONGEST_S = 400.0
"""After so much simulated time a play comes to its end, done or not."""

OPENINGS_AT_THE_END = 8


class Play:
    """One play. `counts` says what happened in it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self._random = rng = random.Random(seed)
        self._loop = VirtualLoop()
        self._network = Network(self._loop, rng.randrange(1 << 32))
        self._network.counts = self.counts
        self._taken: dict[str, list[tuple[int, int, int]]] = {}
        self._table, self._objects = WatchedTable(self._on_opening), MemoryObjects()
        self._events, self._clients, self._batches = count(1), count(1), count()
        has_publishers = rng.random() < 0.3
        self._streams = {
            name: Recorder(name, History(f"seed {seed} {name}", gaps=has_publishers), self._at, self.counts)
            for name in ("orders", "paid", "sent")[: rng.choice((1, 1, 2, 2, 3))]
        }
        self._left = {name: rng.randint(8, 24) for name in self._streams}
        self._hosts = [
            Host(number, rng.choice((0, 0, -HOUR_MS, HOUR_MS, 5000)), self._loop.process(f"{number}"))
            for number in range(rng.randint(2, 4))
        ]
        self._publishers = {
            (host.number, name): NumberingPublisher(host.number)
            for host in self._hosts
            for name in self._streams
            if has_publishers
        }
        in_flight = rng.choice((1, 2, 4, 16))
        # Else no log would grow so long that anything in it may be deleted.
        self._window = rng.choice((max(4, in_flight), in_flight))
        self._wal = WalOptions(
            max_bytes=rng.choice((300, 2000, 1 << 20)),
            interval_s=rng.choice((0.005, 0.05, 0.2)),
            eager=rng.random() < 0.7,
            in_flight=in_flight,
            attempts=rng.choice((1, 2, 4)),
            max_delay_s=0.5,
        )
        self._flush = FlushOptions(
            fragment_bytes=rng.choice((1, 400, 3000, 1 << 20)),
            flush_age_s=rng.choice((0.5, 5, 60)),
            wal_bytes=rng.choice((500, 1 << 20)),
        )
        self._memory_bytes = rng.choice((5000, 1 << 20))
        self._trims = rng.random() < 0.3
        self._ends = False

    def run(self) -> list[History]:
        """Play, and return the history of each stream. Raises PlayError."""
        with self._simulated():
            try:
                self._loop.run_until_complete(self._direct())
            finally:
                self._loop.bury()
                self._loop.close()
        self._look_at_errors()
        for stream in self._streams.values():
            stream.judge()
        return [stream.finished(self._taken.get(name, ())) for name, stream in self._streams.items()]

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        """Have whatever is random, or a time, come from the seed."""
        chance = random.Random(self.seed)

        def time_ns() -> int:
            return NOW_MS * 1_000_000 + int(self._loop.now * 1e9)

        state = random.getstate()
        random.seed(self.seed)
        with ExitStack() as patches:
            patches.enter_context(self._loop.threads.patched())
            patches.enter_context(patch.object(os, "urandom", chance.randbytes))
            patches.enter_context(patch.object(random, "_urandom", chance.randbytes))
            patches.enter_context(patch.object(time, "time_ns", time_ns))
            patches.enter_context(window_of(self._window))
            patches.enter_context(watched(self.counts))
            yield
        random.setstate(state)

    # Who does what.

    async def _direct(self) -> None:
        creator = self._loop.process("creator")
        await creator.start(self._create(creator))
        for host in self._hosts:
            self._begin(host)
        haunting = haunt(self._random, self._loop, self._network, self._hosts, self._begin, self.counts)
        nemesis = asyncio.ensure_future(haunting)
        while not all(host.is_done for host in self._hosts) and self._loop.now < LONGEST_S:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        self._ends = True
        nemesis.cancel()
        self._network.weather.clear()
        for host in self._hosts:
            host.process.thaw()
        await asyncio.sleep(self._random.choice((0, 5, 70)))
        for process in self._loop.processes:
            process.kill()
        last = self._loop.process("last")
        await last.start(self._look_at_the_end(last))

    async def _create(self, process: Process) -> None:
        client, _ = await self._client(process, 0)
        for name in self._streams:
            await client.create(name)
        await client.close()

    async def _look_at_the_end(self, process: Process) -> None:
        client, number = await self._client(process, 0)
        for stream in self._streams.values():
            opened = await self._open_at_the_end(client, stream, number)
            await self._read(stream, opened)
            await stream.append(opened, self._messages())
            await self._read(stream, opened)
            await opened.handle.close()
            await self._read_snapshot(client, stream, number)
        await client.close()

    async def _open_at_the_end(self, client: StreamClient, stream: Recorder, number: int) -> Opened:
        for _ in range(OPENINGS_AT_THE_END):
            opened = await stream.open(number, client.open_stream(stream.name))
            if opened is not None:
                return opened
            await asyncio.sleep(10)  # what the dead sent last still arrives
        raise PlayError(f"{stream.name} cannot be opened when all is well")

    async def _client(self, process: Process, ahead_ms: int) -> tuple[StreamClient, int]:
        table, objects = (Remote(self._network, process, target) for target in (self._table, self._objects))
        number = next(self._clients)

        def now() -> TimestampMs:
            return TimestampMs(NOW_MS + ahead_ms + int(self._loop.now * 1000))

        options = StreamOptions(
            wal=self._wal, flush=self._flush, memory_bytes=self._memory_bytes, writer=f"client-{number}"
        )
        return await StreamClient.open(DirectArchive(table, objects, KEYS, now), options), number  # type: ignore[arg-type]

    def _begin(self, host: Host) -> None:
        host.lives += 1
        host.process = self._loop.process(f"{host.number}.{host.lives}")
        task = host.process.start(self._live(host))
        task.add_done_callback(lambda task: self._on_end(host, task))

    def _on_end(self, host: Host, task: asyncio.Task[None]) -> None:
        host.is_done = True
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.errors.append({"message": f"process {host.process.name}", "exception": error})

    async def _live(self, host: Host) -> None:
        rng = self._random
        client, number = await self._client(host.process, host.ahead_ms)
        opened: dict[str, Opened] = {}
        while not self._ends:
            wanted = [name for name, left in self._left.items() if left > 0]
            if not wanted:
                break
            stream = self._streams[rng.choice(wanted)]
            if rng.random() < 0.1:
                await self._read_snapshot(client, stream, number)
            held = opened.get(stream.name)
            if held is None or held.failure is not None:
                if held is not None and isinstance(held.failure, ExpiredEpochError):
                    await asyncio.sleep(rng.expovariate(0.3))
                held = await stream.open(number, client.open_stream(stream.name))
                if held is None:
                    await asyncio.sleep(rng.expovariate(2))
                    continue
                opened[stream.name] = held
                await self._publish_again(stream, held, host)
            for _ in range(rng.randint(1, 3)):
                await self._use(stream, held, host)
            if rng.random() < 0.15:
                del opened[stream.name]
                with suppress(ColdstreamError):
                    await held.handle.close()
        if rng.random() < 0.5:
            with suppress(ColdstreamError):
                await client.close()

    async def _use(self, stream: Recorder, opened: Opened, host: Host) -> None:
        rng = self._random
        what = rng.random()
        if what < 0.6:
            await self._append(stream, opened, host, rng.choice((1, 1, 2, 4)))
        elif what < 0.75:
            await self._read(stream, opened)
        elif what < 0.82:
            stream.tail(opened)
        elif what < 0.87:
            with suppress(ColdstreamError):
                await opened.handle.flush()
        elif what < 0.92 and self._trims:
            await self._trim(stream, opened)
        else:
            await asyncio.sleep(rng.expovariate(1))

    async def _append(self, stream: Recorder, opened: Opened, host: Host, batches: int) -> None:
        """Call so many appends one after the other, without waiting."""
        rng = self._random
        publisher = self._publishers.get((host.number, stream.name))
        tasks = []
        for _ in range(batches):
            self._left[stream.name] -= 1
            messages, expect, id_ = self._messages(), None, None
            if publisher is not None:
                id_, messages = publisher.next(messages)
            elif rng.random() < 0.2:
                expect = rng.choice((opened.handle.tail, opened.handle.tail, opened.handle.confirmed))
            one = stream.append(opened, messages, expect=expect, publisher=publisher, publishing_id=id_)
            tasks.append(asyncio.ensure_future(one))
            if rng.random() < 0.3:
                await asyncio.sleep(rng.expovariate(50))
        # A publisher that gives up a batch must not go on with the next.
        if publisher is None and rng.random() < 0.05:
            await asyncio.sleep(rng.expovariate(20))
            rng.choice(tasks).cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _publish_again(self, stream: Recorder, opened: Opened, host: Host) -> None:
        """Append again what a host's publisher has heard nothing of, in order."""
        publisher = self._publishers.get((host.number, stream.name))
        for id_, messages in () if publisher is None else tuple(publisher.unconfirmed):
            if opened.failure is not None:
                return
            self.counts["published again"] += 1
            await stream.append(opened, messages, publisher=publisher, publishing_id=id_)

    async def _trim(self, stream: Recorder, opened: Opened) -> None:
        """Trim what this handle has read, so that the history knows it; at times up to within a batch."""
        if not await self._read(stream, opened):
            return
        to = stream.boundary_below(self._random.randint(0, opened.handle.confirmed))
        to = min(to + self._random.choice((0, 0, 1)), opened.handle.confirmed)
        stream.trimmed_to = max(stream.trimmed_to, to)
        self.counts["trim"] += 1
        with suppress(ColdstreamError):
            await opened.handle.trim(Offset(to))

    def _messages(self) -> list[bytes]:
        number = next(self._batches)
        return [f"{number}.{at}".encode() for at in range(self._random.randint(1, 3))]

    # What is told of it.

    def _at(self) -> int:
        return next(self._events)

    def _on_opening(self, name: str, epoch: int, writer: str) -> None:
        client = int(writer.split("-")[1])  # client-N-RANDOM
        self._taken.setdefault(name, []).append((self._at(), client, epoch))

    async def _read(self, stream: Recorder, opened: Opened) -> bool:
        return await stream.read(opened.handle, opened.client, opened.number, self._max_bytes)

    async def _read_snapshot(self, client: StreamClient, stream: Recorder, number: int) -> None:
        call = stream.history.call(client=number, kind="read", at=self._at())
        try:
            handle = await client.open_stream(stream.name, mode=OpenMode.SNAPSHOT)
        except UNKNOWN:
            return
        self.counts["snapshot"] += 1
        await stream.read_for(call, handle, self._max_bytes)
        await handle.close()

    def _max_bytes(self) -> int:
        return self._random.choice((1, 500, 1 << 20))

    def _look_at_errors(self) -> None:
        for error in self._loop.errors:
            exception = error.get("exception")
            if isinstance(exception, Exception) and not isinstance(exception, ColdstreamError):
                raise PlayError(f"seed {self.seed}: {error['message']}: {exception!r}") from exception
