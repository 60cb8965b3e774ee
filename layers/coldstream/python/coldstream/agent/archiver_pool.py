"""The archivers that run: one task for each incarnation that a discovery has found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping

from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.disk.pins import StreamPins
from coldstream.agent.disk.stream_disk import StreamDisk
from coldstream.agent.services import Services
from coldstream.agent.state_directory import StateDirectory
from coldstream.agent.stream_state import StreamState
from coldstream.manifest.stream import Incarnation

WAKING_TURNS = 10


class ArchiverPool(Mapping[Incarnation, StreamArchiver]):
    """Starts archivers and drops those that have ended. As a mapping: those that run, by incarnation.

    Used in the event loop alone, but for `is_excluded`, which any thread may call.
    """

    def __init__(self, state: StateDirectory, services: Services) -> None:
        self._state = state
        self._services = services
        self._archivers: dict[Incarnation, StreamArchiver] = {}
        self._tasks: dict[Incarnation, asyncio.Task[None]] = {}
        self._excluded: set[Incarnation] = set()
        self._turned_at = time.monotonic()

    def __getitem__(self, incarnation: Incarnation) -> StreamArchiver:
        return self._archivers[incarnation]

    def __iter__(self) -> Iterator[Incarnation]:
        return iter(self._archivers)

    def __len__(self) -> int:
        return len(self._archivers)

    @property
    def turned_s(self) -> float:
        """Seconds since the discovery last turned."""
        return time.monotonic() - self._turned_at

    def turn(self) -> None:
        """Drop the archivers that have ended, and note that the discovery's loop still turns.

        A discovery calls it every second or so: /healthz reports one that has stopped to.
        """
        self._turned_at = time.monotonic()
        for incarnation, task in list(self._tasks.items()):
            if task.done():
                task.result()  # an archiver ends by no exception; one that does is a bug, which has to end the agent
                archiver = self._archivers.pop(incarnation)
                del self._tasks[incarnation]
                if archiver.state is StreamState.EXCLUDED:
                    # Remembered, or each scan would start another archiver, only to find out the same.
                    self._excluded.add(incarnation)
                self._services.metrics.forget(incarnation)

    def is_excluded(self, incarnation: Incarnation) -> bool:
        """Tell whether the rules are known to leave an incarnation out."""
        # No lock: the thread of the watch looks into a set that the event loop only ever adds to.
        return incarnation in self._excluded

    def start(self, incarnation: Incarnation, pins: StreamPins, *, is_backfill: bool) -> StreamArchiver | None:
        """Return the archiver of an incarnation, started now if none runs; None if the rules leave it out."""
        if incarnation in self._excluded:
            return None
        # No await from this check to the entry: two archivers of one incarnation would release each other's pins.
        if incarnation not in self._archivers:
            disk = StreamDisk(pins, self._services.every_ms, self._services.quiet)
            file = self._state.stream_file(incarnation)
            archiver = StreamArchiver(incarnation, disk, file, self._services, is_backfill=is_backfill)
            self._archivers[incarnation] = archiver
            self._tasks[incarnation] = asyncio.create_task(archiver.run(), name=f"archiver of {incarnation}")
        return self._archivers[incarnation]

    def wake_changed(self, turn: int) -> None:
        """Wake the archivers of quiet streams whose files have changed; each of WAKING_TURNS turns asks a part of them.

        In parts, because busy streams are woken, too: thousands of looks at once would hold up everything else. Cost:
        two stats a quiet stream.
        """
        for incarnation, archiver in self._archivers.items():
            # By the name, not by the place, which changes as streams come and go.
            if hash(incarnation) % WAKING_TURNS == turn % WAKING_TURNS:
                archiver.wake_if_changed()

    def end_stream(self, vhost: str, name: str, *, but: Incarnation | None = None) -> None:
        """Tell the archivers of a stream's incarnations, `but` one, that nothing more comes.

        Each ends once what is here of its incarnation is archived.
        """
        for incarnation, archiver in self._archivers.items():
            stream = archiver.stream
            if incarnation != but and stream is not None and (stream.vhost, stream.name) == (vhost, name):
                archiver.disk.pins.is_ended = True
                archiver.wake()

    def cancel(self) -> None:
        """Cancel all archivers: none of them does another step."""
        for task in self._tasks.values():
            task.cancel()

    async def wait_ended(self) -> None:
        """Wait until all archivers have let go of their files, after `cancel`."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
