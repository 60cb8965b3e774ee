"""The agent: an archiver for each stream of a broker's node, for as long as it runs.

<state directory>/lock      held while an agent runs on it
                 /pins/     hard links, see pins
                 /streams/  what is remembered of each stream, see stream_file
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import coldstream
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.disk.pins import StreamPins
from coldstream.agent.disk.stream_disk import StreamDisk
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.monitor.status import AgentStatus, StreamStatus
from coldstream.agent.options import AgentOptions
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.namesakes import Namesakes
from coldstream.agent.proof.naming import Naming
from coldstream.agent.services import Services
from coldstream.agent.stream_file import StreamFile
from coldstream.agent.upload_slots import UploadSlots
from coldstream.errors import ColdstreamError, InvalidSettingError, LoginRefusedError, UnavailableError
from coldstream.manifest.stream import Incarnation
from coldstream.units import now_ms

log = logging.getLogger(__name__)

GUARD_S = 2.0
SHOW_S = 5.0
LOGIN_S = 10.0


class Follower(Protocol):
    """Finds streams as they come and go, and has the agent archive them."""

    @property
    def problem(self) -> str | None:
        """What keeps it from seeing everything at once; None when nothing does."""
        ...

    async def run(self, agent: Agent) -> None:
        """Run until cancelled; call `agent.turn` now and then. Raises InvalidSettingError when it cannot begin."""
        ...


class Agent:
    """Archives the streams that its follower finds and the rules take."""

    def __init__(
        self, options: AgentOptions, archive: ArchiveClient, broker: BrokerProver, naming: Naming, metrics: AgentMetrics
    ) -> None:
        self.options = options
        self.metrics = metrics
        self.archivers: dict[Incarnation, StreamArchiver] = {}
        self.refused: dict[tuple[str, str], str] = {}
        """Streams that have no archiver, since the broker refuses them: by vhost and name, and why."""
        self._archive = archive
        self._services = Services(
            archive=archive,
            broker=broker,
            naming=naming,
            slots=UploadSlots(options.uploads),
            rules=options.rules,
            metrics=metrics,
            scan_s=options.scan_s,
            every_ms=options.every_ms,
            host=socket.gethostname(),
            namesakes=Namesakes(options.data),
        )
        self._tasks: dict[Incarnation, asyncio.Task[None]] = {}
        self._excluded: set[Incarnation] = set()
        self._turned_at = time.monotonic()
        self._started_at = now_ms()
        self._problems: dict[str, str] = {}
        self._is_login_refused = False

    @property
    def pins(self) -> Path:
        """The directory of all pins."""
        return self.options.state / "pins"

    @property
    def memories(self) -> Path:
        """The directory of what is remembered of each stream."""
        return self.options.state / "streams"

    @property
    def turned_s(self) -> float:
        """Seconds since the main loop last turned."""
        return time.monotonic() - self._turned_at

    async def run(self, follower: Follower) -> None:
        """Run until cancelled. Raises InvalidSettingError when it cannot begin."""
        with _lock(self.options.state):
            self._check_disk()
            helpers = [
                asyncio.create_task(self._repeat("disk", GUARD_S, self._guard_disk)),
                asyncio.create_task(self._repeat("broker", LOGIN_S, self._log_in)),
                asyncio.create_task(self._repeat("status", SHOW_S, lambda: self._show(follower))),
            ]
            try:
                await follower.run(self)
            finally:
                self._archive.stop()
                for task in (*helpers, *self._tasks.values()):
                    task.cancel()
                await asyncio.gather(*helpers, *self._tasks.values(), return_exceptions=True)

    def _check_disk(self) -> None:
        limit, space = self.options.release_below_bytes, os.statvfs(self.options.state)
        if limit is not None and limit >= space.f_blocks * space.f_frsize:
            raise InvalidSettingError("--release-pins-below", "is more than the whole disk: every pin would be let go")

    def turn(self) -> None:
        """Take note that the main loop turns, and leave of streams that are done."""
        self._turned_at = time.monotonic()
        for life, task in list(self._tasks.items()):
            if task.done():
                task.result()
                archiver = self.archivers.pop(life)
                del self._tasks[life]
                if archiver.state == "excluded":
                    self._excluded.add(life)
                self.metrics.forget(life)

    def memory(self, life: Incarnation) -> StreamFile:
        """Return what is remembered of an incarnation."""
        return StreamFile(self.memories, life)

    def is_excluded(self, life: Incarnation) -> bool:
        """Tell whether the rules are known not to take an incarnation."""
        return life in self._excluded

    def archive(self, life: Incarnation, pins: StreamPins, *, is_backfill: bool) -> StreamArchiver | None:
        """Archive an incarnation, unless that is done already; return its archiver, None when it is excluded."""
        if life in self._excluded:
            return None
        if life not in self.archivers:
            disk = StreamDisk(pins, self.options.every_ms)
            archiver = StreamArchiver(life, disk, self.memory(life), self._services, is_backfill=is_backfill)
            self.archivers[life] = archiver
            self._tasks[life] = asyncio.create_task(archiver.run(), name=f"archiver of {life}")
        return self.archivers[life]

    async def _repeat(self, what: str, pause_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
                self._problems.pop(what, None)
            except Exception as err:  # noqa: BLE001  not even a bug may end it unseen
                expected = isinstance(err, ColdstreamError | OSError)
                self._problem(what, str(err) if expected else f"{what}: {err!r}", None if expected else err)
                self.metrics.failed(err)
            await asyncio.sleep(pause_s)

    def _problem(self, what: str, problem: str, bug: Exception | None = None) -> None:
        if self._problems.get(what) != problem:
            log.error("%s", problem, exc_info=bug)
        self._problems[what] = problem

    async def _log_in(self) -> None:
        """See that the broker takes us, whether a stream wants anything of it or not."""
        try:
            await self._services.broker.login()
        except LoginRefusedError:
            self._is_login_refused = True
            raise
        self._is_login_refused = False

    def _note_refused(self, streams: Sequence[StreamStatus]) -> int:
        """Make a problem of the streams that the broker refuses, and return how many there are."""
        refused = {name: why for (_, name), why in self.refused.items()}
        refused |= {stream.labels[1]: str(stream.last_failure) for stream in streams if stream.state == "refused"}
        if refused and not self._is_login_refused:
            name, why = next(iter(refused.items()))
            self._problem(
                "refused",
                f"the broker refuses streams, which are not archived so long: {len(refused)}, as {name}: {why}",
            )
        else:
            self._problems.pop("refused", None)
        return len(refused)

    async def _show(self, follower: Follower) -> None:
        """Take a snapshot for who asks."""
        try:
            known = await self._services.naming.known()
            self._problems.pop("management", None)
        except ColdstreamError as err:
            self._problem("management", str(err))
            known = ()
        broker_streams = {(stream.vhost, stream.name): stream for stream in known}
        streams: list[StreamStatus] = []
        for archiver in list(self.archivers.values()):
            names = ("", "") if archiver.stream is None else (archiver.stream.vhost, archiver.stream.name)
            streams.append(await archiver.status(broker_streams.get(names)))
        refused = self._note_refused(streams)
        space = os.statvfs(self.options.state)
        self.metrics.show(
            AgentStatus(
                at=now_ms(),
                started_at=self._started_at,
                version=coldstream.__version__,
                host=self._services.host,
                disk_free_bytes=space.f_bavail * space.f_frsize,
                disk_total_bytes=space.f_blocks * space.f_frsize,
                max_lag_s=self.options.max_lag_s,
                problems=(*self._problems.values(), *([follower.problem] if follower.problem is not None else [])),
                settings=self.options.shown(),
                streams=tuple(streams),
                refused_streams=refused,
                is_login_refused=self._is_login_refused,
            )
        )

    async def _guard_disk(self) -> None:
        """Let go of pins while the disk is nearly full, if told to: those that the broker has deleted, oldest first.

        No more of them at once than is missing: space need not be free as soon as a file has no name.
        """
        limit = self.options.release_below_bytes
        missing_bytes = 0 if limit is None else limit - _free_bytes(self.options.state)
        while missing_bytes > 0:
            oldest = min(self._releasable(), key=lambda found: found[0], default=None)
            if oldest is None:
                raise UnavailableError("the disk is nearly full, and no pin is left that could be let go")
            _, size_bytes, archiver = oldest
            await archiver.give_up_oldest(
                f"the disk of {self._services.host} was nearly full before they were archived"
            )
            missing_bytes -= size_bytes

    def _releasable(self) -> Iterator[tuple[float, int, StreamArchiver]]:
        for archiver in self.archivers.values():
            pin = next(iter(archiver.disk.segments), None)
            if pin is not None and not pin.is_active and archiver.disk.pins.is_gone(pin):
                try:
                    found = pin.path.stat()
                    yield found.st_mtime, found.st_size, archiver
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


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
