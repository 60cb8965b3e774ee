"""Writers that are killed at random under load, or stopped and continued after another took over; and what is left.

figures = asyncio.run(kill_often(place, kills=100, seed=1))
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.streams import OpenMode, StreamClient
from coldstream.streams.handle import DirectStream
from coldstream.streams.wal.disk_store import DiskWalStore
from tests.support.direct_writer import OPTIONS, archive_in, body_of, open_again
from tests.support.server import ROOT

STARTS_WITHIN_S = 120.0
"""A writer that has nothing acknowledged by then hangs."""


@dataclass(frozen=True, slots=True)
class KillPlace:
    """Where writers write: with a directory, their write-ahead log is there, and in S3 otherwise."""

    table: str
    bucket: str
    streams: int
    directory: Path | None = None


@dataclass(slots=True)
class KillFigures:
    """What happened. `acknowledged` has, of each stream, base offsets by ids; `refused` bodies."""

    kills: int = 0
    zombies: int = 0
    batches: int = 0
    recovered: int = 0
    acknowledged: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    refused: set[bytes] = field(default_factory=set)


class _KilledWriter:
    """A writer's process, and the lines that it has written."""

    def __init__(self, process: Process, figures: KillFigures) -> None:
        self.process = process
        self._figures = figures
        self.has_begun = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            kind, name, *rest = line.decode().removesuffix("\n").split(" ", 2)
            if kind == "refused":
                self._figures.refused.add(rest[0].encode())
                continue
            id_, base = rest[0].split()
            self.has_begun.set()
            if base != "None":
                known = self._figures.acknowledged[name].setdefault(int(id_), int(base))
                assert known == int(base), f"batch {id_} of {name} was acknowledged at {known} and at {base}"

    async def end(self) -> None:
        """Kill it, and take what it has said."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading


async def kill_often(place: KillPlace, *, kills: int, seed: int) -> KillFigures:
    """Kill writers so often, one after the other, and hold what is left against what they said."""
    rng, figures = random.Random(seed), KillFigures()
    archive = archive_in(place.table, place.bucket)
    async with await StreamClient.open(archive, OPTIONS) as client:
        for number in range(place.streams):
            await client.create(f"stream-{number}")
    stopped: _KilledWriter | None = None
    while figures.kills < kills:
        writer = await _start(place, figures)
        try:
            # Now and then before it has begun: while it opens and recovers.
            if rng.random() < 0.8:
                await asyncio.wait_for(writer.has_begun.wait(), STARTS_WITHIN_S)
            await asyncio.sleep(rng.uniform(0, 1.5))
            if stopped is not None:
                stopped.process.send_signal(signal.SIGCONT)
                await asyncio.sleep(rng.uniform(0, 1))
                await stopped.end()
                stopped = None
        except BaseException:
            await writer.end()
            raise
        if place.directory is None and rng.random() < 0.3:
            writer.process.send_signal(signal.SIGSTOP)
            figures.zombies += 1
            stopped = writer
        else:
            figures.kills += 1
            await writer.end()
    if stopped is not None:
        await stopped.end()
    await _judge(place, figures)
    return figures


async def _start(place: KillPlace, figures: KillFigures) -> _KilledWriter:
    arguments = [place.table, place.bucket, str(place.streams), *([str(place.directory)] if place.directory else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.direct_writer",
        *arguments,
        cwd=ROOT,
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'layers/coldstream/python'}:{ROOT}"},
    )
    return _KilledWriter(process, figures)


async def _judge(place: KillPlace, figures: KillFigures) -> None:
    """Read all streams, in this process, which is another one, and look for what is missing or out of order."""
    archive = archive_in(place.table, place.bucket)
    wal = None if place.directory is None else DiskWalStore(place.directory)
    async with await StreamClient.open(archive, OPTIONS, wal=wal) as client:
        for number in range(place.streams):
            name = f"stream-{number}"
            opened = await open_again(client, name)
            found = await _read(opened)
            snapshot = await client.open_stream(name, mode=OpenMode.SNAPSHOT)
            assert await _read(snapshot) == found
            expected = {body_of(name, id_): id_ for id_ in range(1, len(found) + 1)}
            assert not [body for _, body in found if body in figures.refused], f"something refused is in {name}"
            assert [body for _, body in found] == list(expected), f"{name} has a hole, a duplicate, or another order"
            bases = {expected[body]: base for base, body in found}
            for id_, base in figures.acknowledged[name].items():
                assert bases.get(id_) == base, f"batch {id_} of {name} was acknowledged at {base}: {bases.get(id_)}"
            figures.batches += len(found)
            figures.recovered += len(found) - len(figures.acknowledged[name])
            await opened.close()
    if wal is not None:
        wal.close()


async def _read(stream: DirectStream) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    at = stream.start
    while batches := await stream.fetch(at):
        found += [(one.base_offset, bytes(message.body)) for one in batches for message in one.messages()]
        at = batches[-1].next_offset
    return found
