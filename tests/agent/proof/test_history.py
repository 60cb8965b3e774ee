"""A second history of archived offsets is not let go of in silence."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from coldstream.agent.proof.history import HistoryCheck
from tests.support.node import Node, NodeStream
from tests.support.rig import Rig

pytestmark = pytest.mark.usefixtures("quick")

SPLIT = 250


def gone_on(rig: Rig, tmp_path: Path, *, published: int) -> NodeStream:
    """Return the stream of a cluster that lost what came after SPLIT, and went on from there."""
    again = NodeStream(tmp_path / "again", "/", "orders")
    again.incarnation = rig.stream.incarnation
    again.publish(SPLIT)
    again.publish(published, epoch=2)
    return again


def take(rig: Rig, node: Node, stream: NodeStream) -> None:
    """Have the broker be that of another log, and the agent anew."""
    rig.stream.close()
    rig.stream = node.streams["/", "orders"] = stream
    shutil.rmtree(rig.tmp_path / "state")


async def archived(rig: Rig, messages: int) -> None:
    rig.stream.publish(messages)
    async with rig.running():
        await rig.catches_up()


@pytest.mark.parametrize("published", [120, 600], ids=["short of the archive", "past the archive"])
async def test_what_contradicts_the_archive_goes_to_quarantine_and_is_told(rig, node, tmp_path, published):
    await archived(rig, 500)
    before, announced = rig.archived, len(rig.bus.announced)
    take(rig, node, gone_on(rig, tmp_path, published=published))
    rolled = [int(path.stem) for path in rig.stream.segments]
    async with rig.running() as archiver:
        await rig.until(lambda: not rig.pins[:-1] and len(rig.bus.announced) >= announced + len(rolled) - 1)
        await rig.until(lambda: not rig.bus.waiting)
        assert "goes to quarantine" in archiver.last_failure
    contradicting = [first for first, following in pairwise(rolled) if following > SPLIT and first < before[-1][1]]
    assert contradicting
    assert len(rig.bus.quarantined) == len(contradicting)
    assert rig.archived[: len(before)] == before
    assert rig.bus.lost == []
    assert b'failures_total{kind="corruption",stream="orders",vhost="/"} 1.0' in rig.scrape()


async def test_pins_of_the_same_history_are_released_without_a_word(rig, monkeypatch):
    await archived(rig, 500)
    shutil.rmtree(rig.tmp_path / "state")
    announced, probes = list(rig.bus.announced), rig.node.probes
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.progress.has_begun and not rig.pins[:-1])
        await asyncio.sleep(0.1)
        assert archiver.last_failure is None
    assert rig.bus.announced == announced
    assert rig.node.probes > probes


async def test_what_was_never_committed_here_contradicts_nothing(rig, node, tmp_path):
    """A replica that was apart has what the cluster has another for; the broker will truncate it."""
    await archived(rig, 500)
    ours, tail, announced = rig.stream, rig.archived_to, list(rig.bus.announced)
    again = gone_on(rig, tmp_path, published=600)
    shutil.rmtree(rig.tmp_path / "state")
    rig.stream = again
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.progress.archived_to == tail)
    assert rig.bus.announced == announced
    assert node.streams["/", "orders"] is ours
    again.close()


async def test_nothing_is_released_before_the_broker_shows_which_is_committed(rig, node, tmp_path):
    await archived(rig, 500)
    again = gone_on(rig, tmp_path, published=600)
    again.committed_to = SPLIT
    take(rig, node, again)
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.last_failure is not None and "another chunk" in archiver.last_failure)
        assert len(rig.pins) == len(again.segments)
        again.committed_to = None
        await rig.until(lambda: rig.bus.quarantined)


async def test_a_stream_without_an_archive_is_not_compared(rig, monkeypatch):
    monkeypatch.setattr(HistoryCheck, "_is_committed", None)
    rig.stream.publish(300)
    async with rig.running():
        await rig.catches_up()
