"""The agent: an archiver for each stream of a broker's node, for as long as it runs.

<state directory>/lock      held while an agent runs on it
                 /pins/     hard links, see pins
                 /streams/  what is remembered of each stream, see memory
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import coldstream
from coldstream.agent.archive import Archive
from coldstream.agent.archiver import Services, StreamArchiver
from coldstream.agent.disk import StreamDisk
from coldstream.agent.memory import MemoryFile
from coldstream.agent.metrics import AgentMetrics
from coldstream.agent.naming import Naming
from coldstream.agent.options import AgentOptions
from coldstream.agent.pins import StreamPins, check_links, segment_files
from coldstream.agent.proof import Broker
from coldstream.agent.slots import Slots
from coldstream.agent.status import AgentStatus, StreamStatus
from coldstream.agent.watch import SegmentWatch
from coldstream.errors import ColdstreamError, InvalidNameError, InvalidSettingError
from coldstream.manifest.stream import Incarnation, incarnation
from coldstream.units import now_ms

log = logging.getLogger(__name__)

GUARD_S = 2.0
SHOW_S = 5.0


class Agent:
    """Archives every stream in the broker's data directory that the rules take."""

    def __init__(
        self, options: AgentOptions, archive: Archive, broker: Broker, naming: Naming, metrics: AgentMetrics
    ) -> None:
        self._options = options
        self._archive = archive
        self._metrics = metrics
        self._services = Services(
            archive=archive,
            broker=broker,
            naming=naming,
            slots=Slots(options.uploads),
            rules=options.rules,
            metrics=metrics,
            scan_s=options.scan_s,
            every_ms=options.every_ms,
            host=socket.gethostname(),
        )
        self.archivers: dict[Incarnation, StreamArchiver] = {}
        self._tasks: dict[Incarnation, asyncio.Task[None]] = {}
        self._excluded: set[Incarnation] = set()
        self._turned_at = time.monotonic()
        self._started_at = now_ms()
        self._problems: dict[str, str] = {}

    @property
    def turned_s(self) -> float:
        """Seconds since the main loop last turned."""
        return time.monotonic() - self._turned_at

    async def run(self) -> None:
        """Run until cancelled. Raises InvalidSettingError when it cannot begin."""
        data = self._options.data
        assert data is not None
        pins = self._options.state / "pins"
        with _lock(self._options.state):
            await asyncio.to_thread(check_links, data, pins)
            news: asyncio.Queue[str] = asyncio.Queue()
            loop = asyncio.get_running_loop()

            def tell(name: str) -> None:
                loop.call_soon_threadsafe(news.put_nowait, name)

            watch = SegmentWatch(data, tell)
            watch.start()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._guard_disk())
                    tasks.create_task(self._show(watch))
                    await self._follow(data, pins, news)
            finally:
                self._archive.stop()
                for task in self._tasks.values():
                    task.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)
                await asyncio.to_thread(watch.stop)

    async def _follow(self, data: Path, pins: Path, news: asyncio.Queue[str]) -> None:
        """Begin with what is there; then turn at each piece of news, and every `scan_s` without any."""
        scan_at = 0.0
        is_first = True
        while True:
            self._turned_at = time.monotonic()
            if time.monotonic() >= scan_at:
                names = await asyncio.to_thread(_directories, data, pins)
                for name in names:
                    self._begin(data, pins, name, is_backfill=is_first)
                for archiver in self.archivers.values():
                    archiver.wake()
                scan_at = time.monotonic() + self._options.scan_s
                is_first = False
            self._reap()
            try:
                async with asyncio.timeout(max(0.0, min(1.0, scan_at - time.monotonic()))):
                    name = await news.get()
            except TimeoutError:
                continue
            self._begin(data, pins, name, is_backfill=False)
            if name in self.archivers:
                self.archivers[Incarnation(name)].wake()

    def _begin(self, data: Path, pins: Path, name: str, *, is_backfill: bool) -> None:
        try:
            found = incarnation(name)
        except InvalidNameError:
            return
        if found in self.archivers or found in self._excluded:
            return
        disk = StreamDisk(StreamPins(pins / name, data / name), self._options.every_ms)
        memory = MemoryFile(self._options.state / "streams", found)
        archiver = StreamArchiver(found, disk, memory, self._services, is_backfill=is_backfill)
        self.archivers[found] = archiver
        self._tasks[found] = asyncio.create_task(archiver.run(), name=f"archiver of {name}")

    def _reap(self) -> None:
        """Take leave of streams that are done."""
        for name, task in list(self._tasks.items()):
            if task.done():
                task.result()
                archiver = self.archivers.pop(name)
                del self._tasks[name]
                if archiver.state == "excluded":
                    self._excluded.add(name)
                self._metrics.forget(name)

    async def _show(self, watch: SegmentWatch) -> None:
        """Take snapshots for who asks."""
        while True:
            try:
                known = await self._services.naming.known()
                self._problems.pop("management", None)
            except ColdstreamError as err:
                self._problems["management"] = str(err)
                known = ()
            retention = {(stream.vhost, stream.name): stream for stream in known}
            streams: list[StreamStatus] = []
            for archiver in list(self.archivers.values()):
                names = (archiver.stream.vhost, archiver.stream.name) if archiver.stream is not None else None
                streams.append(await archiver.status(retention.get(names) if names is not None else None))
            problems = [*self._problems.values(), *([watch.problem] if watch.problem is not None else [])]
            space = os.statvfs(self._options.state)
            self._metrics.show(
                AgentStatus(
                    at=now_ms(),
                    started_at=self._started_at,
                    version=coldstream.__version__,
                    host=self._services.host,
                    disk_free_bytes=space.f_bavail * space.f_frsize,
                    disk_total_bytes=space.f_blocks * space.f_frsize,
                    max_lag_s=self._options.max_lag_s,
                    problems=tuple(problems),
                    settings=self._options.shown(),
                    streams=tuple(streams),
                )
            )
            await asyncio.sleep(SHOW_S)

    async def _guard_disk(self) -> None:
        """Let go of pins while the disk is nearly full, if told to: those that the broker has deleted, oldest first."""
        limit = self._options.release_below_bytes
        while limit is not None:
            await asyncio.sleep(GUARD_S)
            while _free_bytes(self._options.state) < limit:
                oldest = min(self._releasable(), key=lambda found: found[0], default=None)
                if oldest is None:
                    self._problems["disk"] = "the disk is nearly full, and no pin is left to let go of"
                    log.error(self._problems["disk"])
                    break
                await oldest[1].give_up_oldest(
                    f"the disk of {self._services.host} was nearly full before they were archived"
                )
            else:
                self._problems.pop("disk", None)

    def _releasable(self) -> Iterator[tuple[float, StreamArchiver]]:
        for archiver in self.archivers.values():
            pin = next(iter(archiver.disk.segments), None)
            if pin is not None and not pin.is_active and not archiver.disk.pins.holds_live(pin):
                try:
                    yield pin.path.stat().st_mtime, archiver
                except FileNotFoundError:
                    continue


@contextmanager
def _lock(state: Path) -> Iterator[None]:
    try:
        state.mkdir(parents=True, exist_ok=True)
        file = (state / "lock").open("w", encoding="ascii")
    except OSError as err:
        raise InvalidSettingError("--state", f"{state} cannot be written to: {err.strerror}") from err
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise InvalidSettingError("--state", f"another agent runs on {state}") from err
        yield


def _directories(data: Path, pins: Path) -> list[str]:
    """Return the names of the streams here: those of the broker, and those of which only pins are left."""
    found: set[str] = set()
    for parent in (data, pins):
        try:
            found.update(path.name for path in parent.iterdir() if segment_files(path))
        except FileNotFoundError:
            continue
    return sorted(found)


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
