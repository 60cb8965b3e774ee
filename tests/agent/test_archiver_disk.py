"""One stream's archiver where the disk, the archive or a bug would stop it: it pins, and lets go of nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coldstream.agent import archiver as archiver_module
from coldstream.agent import delivery
from coldstream.agent.disk.segments import StreamDisk
from coldstream.agent.stream_file import PendingLoss, StreamFile
from coldstream.manifest.stream import Incarnation
from tests.support.replica import Replica
from tests.support.rig import Rig, archived_up_to_the_last_roll, chunks_archived, committed, make_quick, starts


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    make_quick(monkeypatch)


@pytest.fixture
def stream(tmp_path: Path) -> Replica:
    return Replica(tmp_path / "data")


@pytest.fixture
def rig(tmp_path: Path, stream: Replica) -> Rig:
    return Rig(tmp_path, stream, stream)


async def test_a_full_disk_stops_neither_proofs_nor_the_release_of_pins(rig, stream, monkeypatch):
    stream.publish(30)
    async with rig.running():
        await archived_up_to_the_last_roll(rig, stream)
        link = os.link

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        stream.publish(60)
        await rig.until(lambda: rig.pins[-1] == starts(stream)[-1])
        monkeypatch.setattr(StreamFile, "save", full)
        monkeypatch.setattr(os, "link", full)
        stream.publish(30)
        archived_to = rig.pins[-1]
        await rig.until(lambda: rig.archived[-1][1] >= archived_to)
        await rig.until(lambda: set(rig.pins) <= {archived_to})
        monkeypatch.setattr(os, "link", link)
        await archived_up_to_the_last_roll(rig, stream)
    assert chunks_archived(rig) == committed(stream, starts(stream)[-1])


async def test_not_even_a_bug_stops_pinning(rig, stream, monkeypatch):
    look, calls = StreamDisk.look, []

    def broken(self: StreamDisk, *arguments: object) -> None:
        calls.append(1)
        if 2 <= len(calls) <= 10:
            raise ZeroDivisionError
        look(self, *arguments)

    monkeypatch.setattr(StreamDisk, "look", broken)
    stream.publish(30)
    async with rig.running():
        await rig.until(lambda: len(calls) > 1)
        stream.publish(60)
        await archived_up_to_the_last_roll(rig, stream)


async def test_giving_up_lets_go_of_nothing_but_what_was_written_down(rig, stream, monkeypatch):
    """The archiver lets go of the oldest pin between the two steps of giving it up."""
    rig.functions_run = False
    stream.publish(60)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream) and rig.bus.announced)
        stream.retain(1)
        first, second, third = rig.pins[:3]
        lose = archiver.losses.lose

        def raced(loss: PendingLoss) -> None:
            lose(loss)
            archiver.disk.release(archiver.disk.segments[0])

        monkeypatch.setattr(archiver.losses, "lose", raced)
        await archiver.give_up_oldest("full")
        assert rig.pins[:2] == [second, third]
    assert [(loss.first_offset, loss.next_offset) for loss in archiver.identity.lost] == [(first, second)]


async def test_what_the_broker_still_has_is_not_given_up_when_the_oldest_pin_went_meanwhile(rig, stream):
    rig.functions_run = False
    stream.publish(60)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream) and rig.bus.announced)
        await archiver.give_up_oldest("full")
        assert rig.pins == starts(stream)
    assert archiver.identity.lost == ()


async def test_pins_do_not_wait_for_an_archive_that_does_not_answer(rig, stream, monkeypatch):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    monkeypatch.setattr(delivery, "ANNOUNCE_AGAIN_S", 0.1)
    stream.publish(30)
    head = rig.archive.table.head
    answers = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(incarnation: Incarnation) -> object:
        asyncio.run_coroutine_threadsafe(answers.wait(), loop).result()
        return head(incarnation)

    monkeypatch.setattr(rig.archive.table, "head", hang)
    async with rig.running(), rig.running(), rig.running():
        await rig.until(lambda: rig.pins == starts(stream))
        await asyncio.sleep(0.1)
        stream.publish(60)
        try:
            await rig.until(lambda: rig.pins == starts(stream))
        finally:
            answers.set()


async def test_a_file_that_is_gone_for_good_is_told_and_not_looked_for_again_at_once(rig, stream, monkeypatch):
    stream.publish(30)
    calls: list[int] = []

    def gone(*_: object) -> None:
        calls.append(1)
        raise FileNotFoundError(errno.ENOENT, "gone")

    monkeypatch.setattr(StreamDisk, "wanted", gone)
    monkeypatch.setattr(archiver_module, "MAX_LOOK_AGAIN_S", 0.2)
    async with rig.running() as archiver:
        await rig.until(lambda: archiver._last_failure is not None)
        assert len(calls) < 10
        assert "gone" in archiver._last_failure


async def test_what_cannot_be_pinned_yet_is_neither_passed_over_nor_lost(rig, stream, monkeypatch):
    link = os.link

    def picky(source: Path, target: Path) -> None:
        if source.name in {f"{0:020}.segment", f"{36:020}.segment"}:
            raise OSError(errno.ENOSPC, "No space left on device")
        link(source, target)

    monkeypatch.setattr(os, "link", picky)
    stream.publish(30)
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.stream is not None and "No space left" in (archiver._last_failure or ""))
        await asyncio.sleep(0.1)
        assert rig.bus.announced == []
        monkeypatch.setattr(os, "link", link)
        await archived_up_to_the_last_roll(rig, stream)
    assert chunks_archived(rig) == committed(stream, starts(stream)[-1])
    assert rig.bus.lost == []


async def test_a_memory_that_cannot_be_removed_ends_no_more_than_its_archiver(rig, stream, monkeypatch):
    def refused(_: StreamFile) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(StreamFile, "forget", refused)
    stream.publish(30)
    archiver = rig.new_archiver()
    task = asyncio.create_task(archiver.run())
    await rig.until(lambda: archiver.stream is not None)
    stream.delete()
    async with asyncio.timeout(10):
        while rig.bus.waiting or not task.done():
            rig.bus.handle()
            await asyncio.sleep(0.01)
    assert task.exception() is None
    assert archiver.state == "deleted"
