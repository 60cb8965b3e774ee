"""A quiet stream costs two stats now and then, and what changes in it is seen as soon as before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coldstream.agent import stream_delivery
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.archiver_pool import WAKING_TURNS, ArchiverPool
from coldstream.agent.disk.stream_disk import StreamDisk
from coldstream.agent.state_directory import StateDirectory
from coldstream.manifest.stream import Incarnation
from tests.support.node import START, Node
from tests.support.rig import DEADLINE_S, SCAN_S, Rig

pytestmark = pytest.mark.usefixtures("quick")


async def grows_quiet(rig: Rig, archiver: StreamArchiver) -> None:
    await rig.until(lambda: archiver.progress.is_quiet and archiver.progress.quiet_look is not None)


@contextmanager
def counted_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StreamDisk]]:
    looks: list[StreamDisk] = []
    look = StreamDisk.look

    def counting(self: StreamDisk, *arguments: int) -> None:
        looks.append(self)
        look(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(StreamDisk, "look", counting)
        yield looks


async def test_nobody_looks_at_the_disk_of_a_quiet_stream(rig, monkeypatch):
    rig.stream.publish(10)
    async with rig.running() as archiver:
        await grows_quiet(rig, archiver)
        with counted_looks(monkeypatch) as looks:
            async with asyncio.timeout(DEADLINE_S):
                # A scan that was due before it was quiet may still come.
                while True:
                    looks.clear()
                    await asyncio.sleep(6 * SCAN_S)
                    if not looks:
                        break


async def test_the_status_of_a_quiet_stream_is_made_once(rig):
    rig.stream.publish(10)
    async with rig.running() as archiver:
        await grows_quiet(rig, archiver)
        shown = await archiver.status(None)
        assert await archiver.status(None) is shown
        rig.stream.publish(10)
        archiver.wake_if_changed()
        assert (await archiver.status(None)).disk_to == 20


async def test_what_is_published_to_a_quiet_stream_without_an_event_is_pinned_and_archived(rig):
    rig.stream.publish(10)
    async with rig.running() as archiver:
        await grows_quiet(rig, archiver)
        rig.stream.publish(500)
        await rig.catches_up()


async def test_a_pin_that_vanishes_from_a_quiet_stream_is_made_again(rig):
    rig.stream.publish(10)
    async with rig.running() as archiver:
        await grows_quiet(rig, archiver)
        (rig.tmp_path / "state/pins" / rig.stream.incarnation / rig.stream.segments[-1].name).unlink()
        await rig.until(lambda: rig.pins == [0])


def test_in_so_many_turns_each_archiver_is_asked_once(tmp_path):
    asked: list[str] = []

    class Asked:
        def __init__(self, name: str) -> None:
            self.name = name

        def wake_if_changed(self) -> None:
            asked.append(self.name)

    pool = ArchiverPool(StateDirectory(tmp_path), object())
    names = [f"__orders-{number}_17" for number in range(100)]
    pool._archivers |= {Incarnation(name): Asked(name) for name in names}
    for turn in range(7, 7 + WAKING_TURNS):
        pool.wake_changed(turn)
    assert sorted(asked) == sorted(names)


async def test_the_first_message_after_a_silence_is_archived_within_the_lag(tmp_path):
    node = Node(tmp_path / "data")
    rig = Rig(tmp_path, node, node.declare("orders"), every_ms=1000)
    async with rig.running() as archiver:
        rig.stream.publish(1)
        await rig.until(lambda: rig.archived_to == 1)
        await grows_quiet(rig, archiver)
        rig.stream.publish(1)
        await rig.until(lambda: rig.archived_to == 2)
    node.close()


async def test_a_stream_with_a_message_whose_time_will_come_is_not_quiet(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_delivery, "now_ms", lambda: START + 1)
    node = Node(tmp_path / "data")
    rig = Rig(tmp_path, node, node.declare("orders"), every_ms=1000)
    async with rig.running() as archiver:
        rig.stream.publish(1)
        await rig.until(lambda: archiver.state == "following")
        await asyncio.sleep(0.2)
        assert not archiver.progress.is_quiet
        assert rig.archived_to == 0
    node.close()


async def test_a_quiet_stream_that_is_deleted_ends(rig):
    rig.stream.publish(10)
    async with rig.running() as archiver:
        await grows_quiet(rig, archiver)
        rig.node.delete("orders")
        await rig.until(lambda: archiver.state.is_final)
