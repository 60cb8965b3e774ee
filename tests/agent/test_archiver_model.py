"""Random histories of a stream and its archiver; in the end the archive is the committed log, chunk by chunk.

Whoever changes the archiver runs more of them: COLDSTREAM_SEEDS=2000 pytest tests/agent/test_archiver_model.py
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from coldstream.errors import AccessDeniedError, UnavailableError
from coldstream.format.chunk import iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset
from tests.support.replica import Replica
from tests.support.rig import Rig, losses_are_announced

pytestmark = pytest.mark.usefixtures("quick")

SEEDS = int(os.environ.get("COLDSTREAM_SEEDS", "6"))
STEPS = 25


class History:
    """A stream and its archiver. `loses` says that it may come to what nobody could have archived."""

    def __init__(self, tmp_path: Path, seed: int, *, loses: bool) -> None:
        self.rng = random.Random(seed)
        self.loses = loses
        self.stream = Replica(tmp_path / "data", max_segment_bytes=self.rng.choice([700, 2000]), seed=seed)
        self.rig = Rig(tmp_path, self.stream, self.stream)
        # Chunks of one size: what a lost leader wrote often ends where the next leader's log has a border, too.
        self.messages = self.rng.choice([[1, 2, 3], [2]])
        self.failing = 0.0
        self._running: AsyncExitStack | None = None
        self._make_flaky()

    async def run(self) -> None:
        steps: list[Callable[[], object]] = [
            self._publish, self._publish, self._publish, self._track, self._publish_alone, self._come_back,
            self._lose_leader, self._retain, self._retain, self._make_anew, self._start, self._start, self._kill,
            self._aws, self._functions, self._broker, self._forget,
        ]  # fmt: skip
        self._publish()
        for _ in range(STEPS):
            done = self.rng.choice(steps)()
            if done is not None:
                await done
            if self.rng.random() < 0.7:
                await asyncio.sleep(self.rng.random() * 0.02)
        await self._settle()
        await self._kill()

    def _publish(self) -> None:
        if not self.stream.alone:
            step_ms = self.rng.choice([10, 700, -300])
            self.stream.publish(self.rng.randrange(1, 12), messages=self._messages(), size=60, step_ms=step_ms)

    def _messages(self) -> int:
        return self.rng.choice(self.messages)

    def _track(self) -> None:
        if not self.stream.alone:
            self.stream.track()

    def _publish_alone(self) -> None:
        self.stream.publish_alone(self.rng.randrange(1, 12), messages=self._messages(), size=60)

    def _come_back(self) -> None:
        self.stream.commit()

    async def _lose_leader(self) -> None:
        self.stream.lose_leader(self.rng.randrange(12), messages=self._messages(), size=60)
        if self.rng.random() < 0.5:
            await asyncio.sleep(0.02)
        self.stream.truncate()

    async def _retain(self) -> None:
        """Delete old segments, those alone that are pinned unless something may be lost."""
        if self.stream.alone or not self.stream.on_disk:
            return
        for path in self.stream.expendable(self.rng.randrange(1, 5)):
            if self.loses or self._is_archived(int(path.stem)) or self._is_kept(path):
                self.stream.delete_file(path)
                if self.rng.random() < 0.3:
                    await asyncio.sleep(0.005)
            else:
                return

    def _is_archived(self, first_offset: int) -> bool:
        after = next((int(path.stem) for path in self.stream.segments if int(path.stem) > first_offset), None)
        return after is not None and any(first <= first_offset and after <= end for first, end in self.rig.archived)

    def _is_kept(self, path: Path) -> bool:
        """Tell whether the agent has pinned a file, and has seen it beside its neighbours if the leader changed."""
        pins = self.rig.tmp_path / "state/pins" / self.stream.incarnation
        for before, after in pairwise(self.stream.on_disk):
            if path in {before.path, after.path} and before.chunks[-1].header.epoch != after.chunks[0].header.epoch:
                last, first = before.chunks[-1].header, after.chunks[0].header
                if not (pins / f"{first.chunk_id:020}-{last.epoch}-{first.epoch}.succession").exists():
                    return False
        pin = pins / path.name
        return pin.exists() and pin.samefile(path)

    def _make_anew(self) -> None:
        if self.rng.random() < 0.3 and (self.loses or not self.stream.alone):
            self.stream.max_segment_bytes = self.rng.choice([700, 2000])
            if self.stream.alone:
                self.stream.lose_leader()
            self.stream.make_anew()

    async def _start(self) -> None:
        if self._running is None:
            self.rig.every_ms = self.rng.choice([None, 1000, 3000])
            self._running = AsyncExitStack()
            self._archiver = await self._running.enter_async_context(self.rig.running())

    async def _kill(self) -> None:
        if self._running is not None:
            await self._running.aclose()
            self._running = None

    def _aws(self) -> None:
        self.failing = self.rng.choice([0.0, 0.1, 0.5, 1.0])

    def _functions(self) -> None:
        self.rig.functions_run = self.rng.random() < 0.7

    def _broker(self) -> None:
        self.stream.is_down = self.rng.random() < 0.3

    def _forget(self) -> None:
        """Lose what is remembered, or half of it."""
        if self._running is None and self.loses:
            for path in (self.rig.tmp_path / "state/streams").glob("*"):
                path.write_bytes(path.read_bytes()[: self.rng.choice([0, 30])])

    async def _settle(self) -> None:
        self.failing = 0.0
        self.rig.functions_run = True
        self.stream.is_down = False
        self.stream.lose_leader()
        self.stream.truncate()
        await self._start()
        for _ in range(3):
            self.stream.publish(30, size=60)
            await asyncio.sleep(0.02)
        last = int(self.stream.segments[-1].stem)
        await self.rig.until(lambda: self.rig.archived and self.rig.archived[-1][1] >= last)
        await self.rig.until(lambda: self.rig.pins == [last])
        await losses_are_announced(self.rig, self._archiver)

    def _make_flaky(self) -> None:
        """Have AWS fail before or after it has done what it was asked for."""

        def flaky(call: Callable[..., object]) -> Callable[..., object]:
            def called(*arguments: object, **named: object) -> object:
                if self.rng.random() < self.failing / 2:
                    raise AccessDeniedError("expired")
                done = call(*arguments, **named)
                if self.rng.random() < self.failing / 2:
                    raise UnavailableError("the answer was lost")
                return done

            return called

        archive = self.rig.archive
        self.rig.bus.put = flaky(self.rig.bus.put)  # type: ignore[method-assign, assignment]
        self.rig.agents_table = _Flaky(archive.table, flaky)
        self.rig.agents_objects = _Flaky(archive.objects, flaky)


class _Flaky:
    def __init__(self, real: object, flaky: Callable[..., object]) -> None:
        self._real = real
        self._flaky = flaky

    def __getattr__(self, name: str) -> object:
        found = getattr(self._real, name)
        return self._flaky(found) if callable(found) else found


def archived(rig: Rig) -> list[tuple[int, int, bytes]]:
    """Return the chunks in the archive, and their bytes."""
    entries = rig.archive.table.log_from_offset(Incarnation(rig.stream.incarnation), Offset(0), 10_000).entries
    found: list[tuple[int, int, bytes]] = []
    for entry in entries:
        body = rig.archive.body(entry.key)
        for chunk in iter_chunks(
            body[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes],
            source=entry.key,
            position=SEGMENT_HEADER_BYTES,
        ):
            raw = body[chunk.position : chunk.position + chunk.header.total_bytes]
            found.append((chunk.header.chunk_id, chunk.header.next_offset, raw))
    return found


def committed(stream: Replica) -> list[tuple[int, int, bytes]]:
    return [(chunk.header.chunk_id, chunk.header.next_offset, chunk.raw) for chunk in stream.log]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_archive_is_the_committed_log(tmp_path, seed):
    history = History(tmp_path, seed, loses=False)
    await history.run()
    found = archived(history.rig)
    assert found == committed(history.stream)[: len(found)]
    assert history.rig.bus.lost == []
    assert history.rig.bus.quarantined == []


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_what_nobody_could_archive_is_told_and_nothing_else_is_missing(tmp_path, seed):
    history = History(tmp_path, seed, loses=True)
    await history.run()
    found = archived(history.rig)
    assert history.rig.bus.quarantined == []
    log = {first: (first, end, raw) for first, end, raw in committed(history.stream)}
    assert [log.get(first) for first, _, _ in found] == found
    losses = [range(first, end) for first, end, _ in history.rig.bus.lost]
    holes = [(before[1], after[0]) for before, after in pairwise([(0, 0, b""), *found]) if before[1] < after[0]]
    for first, end in holes:
        assert all(any(offset in lost for lost in losses) for offset in range(first, end)), (first, end, losses)
