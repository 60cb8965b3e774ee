"""What is lost, and what another agent may still bring."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from zlib import crc32

import pytest

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.losses import REPLICAS_SUSPICION_S, SUSPICION_S, UNSEEN, Losses
from coldstream.agent.monitor.exposition_format import ExpositionFormat
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.stream_file import PendingLoss, RememberedStream, StreamFile
from coldstream.archive.commit import commit_fragment
from coldstream.archive.missing import record_missing
from coldstream.errors import UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.manifest.entry import Quarantine
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import MAX_OFFSET, Offset, TimestampMs
from tests.manifest.samples import fragment
from tests.support.removing import delete, remove_prefix
from tests.support.rig import Bus
from tests.support.segments import MemoryArchive

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
INCARNATION = STREAM.incarnation
NOW = TimestampMs(0)
WHY = "deleted by the broker's retention before the agent of here had them"


class Scene:
    """The losses of one stream, and an archive in memory."""

    def __init__(self, tmp_path: Path) -> None:
        self.now_s = 1000.0
        self.nodes: int | None = 1
        self.archive = MemoryArchive()
        self.bus = Bus(self.archive)
        self.metrics = AgentMetrics()
        self.file = StreamFile(tmp_path, INCARNATION)
        self.file.save(RememberedStream(STREAM, Offset(MAX_OFFSET)))
        self.losses = self.again()

    def again(self) -> Losses:
        """Return the losses of an agent that has just started."""
        archive = ArchiveClient(
            self.archive.table, self.archive.objects, self.bus, self.archive.keys, BandwidthLimit(None)
        )
        identity = StreamIdentity(INCARNATION, self.file, None, None)  # type: ignore[arg-type]  # not asked
        return Losses(identity, archive, self.metrics, self, "here", clock=lambda: self.now_s)  # type: ignore[arg-type]

    async def members(self, vhost: str, name: str) -> int:
        if self.nodes is None:
            raise UnavailableError("down")
        return self.nodes

    def commit(self, first: int, following: int) -> None:
        commit_fragment(self.archive.table, STREAM, fragment(first, following), lambda: NOW)

    def stage(self, first: int, following: int) -> str:
        key = self.archive.keys.staged(INCARNATION, Offset(first), Offset(following))
        self.archive.objects.put_new(key, BytesIO(b"slice"), size_bytes=5, crc32=crc32(b"slice"))
        return key

    async def after(self, times: float = 1.0) -> list[tuple[int, int, str]]:
        """Return what is announced when so many times SUSPICION_S more have passed."""
        self.now_s += times * SUSPICION_S
        before = len(self.bus.lost)
        await self.losses.report()
        self.bus.handle()
        return self.bus.lost[before:]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_what_is_missing_after_the_tail_is_lost_once_nobody_has_brought_it(scene: Scene) -> None:
    scene.commit(0, 50)
    await scene.losses.suspect(Offset(0), Offset(80))
    assert await scene.after(0.9) == []
    assert await scene.after(0.1) == [(50, 80, WHY)]
    assert await scene.after(5) == []
    assert (scene.losses.complete_from, scene.losses.why) == (80, WHY)
    assert b"lost_offsets_total{" in scene.metrics.text(ExpositionFormat.wanted(""))


@pytest.mark.parametrize("nodes", [3, None], ids=["on three nodes", "the broker is down"])
async def test_where_other_nodes_have_the_stream_their_agents_are_given_longer(scene: Scene, nodes: int | None) -> None:
    scene.nodes = nodes
    scene.commit(0, 50)
    await scene.losses.suspect(Offset(0), Offset(80))
    assert await scene.after(0.99 * REPLICAS_SUSPICION_S / SUSPICION_S) == []
    assert await scene.after(0.01 * REPLICAS_SUSPICION_S / SUSPICION_S) == [(50, 80, WHY)]


async def test_what_was_deleted_before_an_agent_came_is_told_and_is_no_loss_of_ours(scene: Scene) -> None:
    await scene.losses.suspect(Offset(0), Offset(80), unseen=True)
    assert await scene.after() == [(0, 80, UNSEEN)]
    assert b"lost_offsets_total{" not in scene.metrics.text(ExpositionFormat.wanted(""))
    scene.commit(80, 90)
    scene.commit(95, 99)
    again = scene.again()
    await again.suspect(Offset(0), Offset(85))
    assert not again.are_suspected
    assert (again.complete_from, again.why) == (80, UNSEEN)


async def test_what_an_agent_missed_before_anything_is_archived_is_a_loss_of_ours(scene: Scene) -> None:
    """By the protocol, while the archive is down and there is no more room: what was read before is still here."""
    scene.losses.note(Offset(50), Offset(80))
    assert await scene.after(0) == []
    assert await scene.after() == [(50, 80, WHY)]
    assert b"lost_offsets_total{" in scene.metrics.text(ExpositionFormat.wanted(""))


async def test_an_archive_that_begins_late_says_why_when_an_agent_comes(scene: Scene) -> None:
    """An agent of an earlier release left it so."""
    scene.commit(40, 50)
    scene.commit(60, 70)
    await scene.losses.suspect(Offset(0), Offset(65), unseen=True)
    assert await scene.after() == [(0, 40, UNSEEN), (50, 60, WHY)]


async def test_what_another_agent_archives_meanwhile_is_not_lost(scene: Scene) -> None:
    scene.commit(0, 50)
    await scene.losses.suspect(Offset(50), Offset(80))
    scene.commit(50, 60)
    assert await scene.after() == []
    scene.commit(60, 70)
    assert await scene.after() == []
    scene.commit(70, 80)
    assert await scene.after() == []
    assert not scene.losses.are_suspected
    assert scene.losses.complete_from == 0


async def test_a_hole_that_another_agent_fills_in_part_is_lost_from_there_on(scene: Scene) -> None:
    scene.commit(0, 50)
    await scene.losses.suspect(Offset(50), Offset(80))
    scene.commit(50, 60)
    assert await scene.after() == []
    assert await scene.after() == [(60, 80, WHY)]


async def test_what_is_staged_by_anybody_is_not_lost(scene: Scene) -> None:
    """As while its event waits in a queue, or in the dead-letter queue."""
    scene.commit(0, 50)
    key = scene.stage(70, 90)
    await scene.losses.suspect(Offset(50), Offset(80))
    for _ in range(5):
        assert await scene.after() == []
    scene.archive.objects.delete(key)
    assert await scene.after() == [(50, 80, WHY)]


async def test_copies_of_other_offsets_prove_nothing(scene: Scene) -> None:
    scene.commit(0, 50)
    scene.stage(20, 50)
    scene.stage(80, 90)
    scene.archive.objects.create_upload(scene.archive.keys.staged(INCARNATION, Offset(80), Offset(90)))
    await scene.losses.suspect(Offset(50), Offset(80))
    assert await scene.after() == [(50, 80, WHY)]


async def test_what_is_being_staged_is_not_lost_while_it_goes_on(scene: Scene) -> None:
    scene.commit(0, 50)
    key = scene.archive.keys.staged(INCARNATION, Offset(50), Offset(90))
    upload_id = scene.archive.objects.create_upload(key)
    await scene.losses.suspect(Offset(50), Offset(80))
    for number in range(1, 4):
        scene.archive.objects.put_part(key, upload_id, number, b"part", crc32=crc32(b"part"))
        assert await scene.after() == []
    assert await scene.after() == [(50, 80, WHY)]


async def test_a_gap_with_a_reason_is_not_announced_again(scene: Scene) -> None:
    scene.commit(0, 50)
    aside = Quarantine(Offset(50), Offset(60), "CRC", NOW, "key", "etag")
    record_missing(scene.archive.table, STREAM, aside)
    await scene.losses.suspect(Offset(50), Offset(80))
    assert await scene.after() == [(60, 80, WHY)]
    await scene.losses.suspect(Offset(50), Offset(80))
    assert not scene.losses.are_suspected


async def test_what_is_suspected_twice_is_told_once(scene: Scene) -> None:
    scene.commit(0, 50)
    scene.losses.note(Offset(50), Offset(80))
    assert scene.losses.are_suspected
    assert await scene.after(0) == []
    await scene.losses.suspect(Offset(60), Offset(80))
    assert await scene.after() == [(50, 80, WHY)]


async def test_a_loss_that_could_not_be_announced_is_told_later_also_by_the_next_run(scene: Scene) -> None:
    scene.commit(0, 50)
    await scene.losses.suspect(Offset(50), Offset(80))
    scene.bus.is_down = True
    with pytest.raises(Exception, match="the bus is down"):
        await scene.after()
    scene.bus.is_down = False
    scene.losses = scene.again()
    assert await scene.after(0) == [(50, 80, WHY)]


async def test_what_is_given_up_is_lost_at_once(scene: Scene) -> None:
    scene.losses.lose(PendingLoss(Offset(5), Offset(9), "full"))
    assert await scene.after(0) == [(5, 9, "full")]


async def test_what_the_archive_had_removed_is_not_lost(scene: Scene) -> None:
    for first in (10, 20, 40):
        scene.commit(first, first + 10)
    remove_prefix(scene.archive.table, INCARNATION, 2)
    await scene.losses.suspect(Offset(0), Offset(50), unseen=True)
    assert await scene.after() == [(30, 40, UNSEEN)]
    delete(scene.archive.table, INCARNATION)
    await scene.losses.suspect(Offset(0), Offset(500), unseen=True)
    assert await scene.after() == []
