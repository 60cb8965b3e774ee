"""The disk source: streams as they come and go in the broker's data directory."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from coldstream.agent.agent import Agent
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.disk.pins import StreamPins, check_links, segment_files
from coldstream.agent.disk.watch import SegmentWatch
from coldstream.errors import InvalidNameError
from coldstream.manifest.stream import Incarnation, incarnation

TURN_S = 1.0


class DiskFollower:
    """Has every stream in the directory `data` archived, and those of which only pins are left."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._watch: SegmentWatch | None = None
        self._unread: str | None = None

    @property
    def problem(self) -> str | None:
        """What is wrong with the directories, or the file system's events; None when all is told."""
        return self._unread or (None if self._watch is None else self._watch.problem)

    async def run(self, agent: Agent) -> None:
        """Begin with what is there; then turn at each piece of news, and every `scan_s` without any."""
        await asyncio.to_thread(check_links, self._data, agent.pins)
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[str] = asyncio.Queue()

        def tell(name: str) -> None:
            # Here and now: retention may leave a segment of a busy stream no more than a moment.
            life = _life(name)
            if life is not None and not agent.is_excluded(life):
                with suppress(OSError):  # what cannot be pinned now is told where it is looked at again
                    self._pins(agent, life).pin_new()
            loop.call_soon_threadsafe(news.put_nowait, name)

        self._watch = SegmentWatch(self._data, tell)
        self._watch.start()
        try:
            await self._follow(agent, news)
        finally:
            await asyncio.to_thread(self._watch.stop)

    async def _follow(self, agent: Agent, news: asyncio.Queue[str]) -> None:
        scan_at = 0.0
        is_backfill = True
        while True:
            agent.turn()
            if time.monotonic() >= scan_at:
                try:
                    names = await asyncio.to_thread(_names, self._data, agent.pins, agent.memories)
                except OSError as err:
                    self._unread = str(err)
                    names = []
                else:
                    self._unread = None
                for name in names:
                    self._archiver(agent, name, is_backfill=is_backfill)
                is_backfill = is_backfill and self._unread is not None
                scan_at = time.monotonic() + agent.options.scan_s
            try:
                async with asyncio.timeout(min(TURN_S, max(0.0, scan_at - time.monotonic()))):
                    archiver = self._archiver(agent, await news.get(), is_backfill=False)
            except TimeoutError:
                continue
            if archiver is not None:
                archiver.wake()

    def _archiver(self, agent: Agent, name: str, *, is_backfill: bool) -> StreamArchiver | None:
        life = _life(name)
        if life is None:
            return None
        pins = self._pins(agent, life)
        if agent.is_excluded(life):
            pins.release_all()
            return None
        return agent.archive(life, pins, is_backfill=is_backfill)

    def _pins(self, agent: Agent, life: Incarnation) -> StreamPins:
        return StreamPins(agent.pins / life, self._data / life)


def _life(name: str) -> Incarnation | None:
    try:
        return incarnation(name)
    except InvalidNameError:  # no broker's directory
        return None


def _names(data: Path, pins: Path, memories: Path) -> list[str]:
    """Return the names of the directories here that hold segments, the broker's and those of pins, and of memories.

    Of a stream whose pins were all let go, a loss may still be to be told.
    """
    found: set[str] = set()
    for parent in (data, pins):
        with suppress(FileNotFoundError):
            found.update(path.name for path in parent.iterdir() if segment_files(path))
    found.update(path.stem for path in memories.glob("*.json"))
    return sorted(found)
