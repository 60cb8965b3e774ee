"""The discovery for the disk source: streams as they come and go in the broker's data directory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.archiver_pool import ArchiverPool
from coldstream.agent.disk.pins import StreamPins, check_links, segment_files
from coldstream.agent.disk.watch import SegmentWatch
from coldstream.agent.options import AgentOptions
from coldstream.agent.state_directory import StateDirectory
from coldstream.errors import InvalidNameError
from coldstream.manifest.stream import Incarnation, incarnation

TURN_S = 1.0


class DiskDiscovery:
    """Has every stream in the broker's directory archived, and every stream of which only pins are left."""

    refused: Mapping[tuple[str, str], str] = MappingProxyType({})
    """Empty: each stream here gets an archiver, which reports by itself that the broker refuses it."""

    def __init__(self, options: AgentOptions) -> None:
        assert options.data is not None, "AgentOptions demands it of the disk source"
        self._data = options.data
        self._state = StateDirectory(options.state)
        self._scan_s = options.scan_s
        self._watch: SegmentWatch | None = None
        self._listing_failure: str | None = None

    @property
    def problem(self) -> str | None:
        """What is wrong with the directories or with the file system's events; None if nothing is."""
        return self._listing_failure or (None if self._watch is None else self._watch.problem)

    async def run(self, archivers: ArchiverPool) -> None:
        """Begin with the streams that are there. Then turn at each event, and list the directories every `scan_s`."""
        await asyncio.to_thread(check_links, self._data, self._state.pins)
        loop = asyncio.get_running_loop()
        changes: asyncio.Queue[str] = asyncio.Queue()

        def on_change(name: str) -> None:
            # Pinned here, in the thread of the watch, and not by the archiver: the event loop may be busy, and
            # retention may leave a segment of a busy stream no more than a moment.
            changed = _incarnation_of(name)
            if changed is not None and not archivers.is_excluded(changed):
                with suppress(OSError):  # the archiver's next look pins what is missing, and reports why it cannot
                    self._pins(changed).pin_new()
            # An asyncio queue is not for threads: a plain put from here would not wake the loop.
            loop.call_soon_threadsafe(changes.put_nowait, name)

        self._watch = SegmentWatch(self._data, on_change)
        # Before the directories are first listed: what comes in between is told, or is on the list already.
        self._watch.start()
        try:
            await self._follow(archivers, changes)
        finally:
            # In a thread, as it joins another one, which may be linking a file on a slow disk.
            await asyncio.to_thread(self._watch.stop)

    async def _follow(self, archivers: ArchiverPool, changes: asyncio.Queue[str]) -> None:
        scan_at = 0.0
        is_backfill = True
        while True:
            archivers.turn()
            if time.monotonic() >= scan_at:
                try:
                    names = await asyncio.to_thread(_directory_names, self._data, self._state, frozenset(archivers))
                except OSError as err:
                    self._listing_failure = str(err)
                    names = []
                else:
                    self._listing_failure = None
                # Those that run look for themselves.
                for name in names:
                    self._start(archivers, name, is_backfill=is_backfill)
                # What the first list that succeeds shows was there before the agent; what comes later is new.
                is_backfill = is_backfill and self._listing_failure is not None
                scan_at = time.monotonic() + self._scan_s
            try:
                async with asyncio.timeout(min(TURN_S, max(0.0, scan_at - time.monotonic()))):
                    archiver = self._start(archivers, await changes.get(), is_backfill=False)
            except TimeoutError:
                continue
            if archiver is not None:
                archiver.wake()

    def _start(self, archivers: ArchiverPool, name: str, *, is_backfill: bool) -> StreamArchiver | None:
        """Return the archiver of a directory; None for one that is not a stream's, or that the rules leave out."""
        found = _incarnation_of(name)
        if found is None:
            return None
        pins = self._pins(found)
        if archivers.is_excluded(found):
            # The watch may have pinned a segment in the moment before the pool knew that the rules leave it out.
            pins.release_all()
            return None
        return archivers.start(found, pins, is_backfill=is_backfill)

    def _pins(self, found: Incarnation) -> StreamPins:
        return StreamPins(self._state.pins_of(found), self._data / found)


def _incarnation_of(name: str) -> Incarnation | None:
    try:
        return incarnation(name)
    except InvalidNameError:  # not a directory of the broker's making
        return None


def _directory_names(data: Path, state: StateDirectory, but: AbstractSet[str]) -> list[str]:
    """Return the names of all incarnations that are here in any way, in order, `but` some.

    They have segments in the broker's directory or among the pins, or only a file of what is remembered of them: a loss
    may still have to be announced of a stream whose pins were all released.
    """
    names: set[str] = set()
    for parent in (data, state.pins):
        with suppress(FileNotFoundError):
            names.update(path.name for path in parent.iterdir() if path.name not in but and segment_files(path))
    names.update(path.stem for path in state.stream_files.glob("*.json"))
    return sorted(names - but)
