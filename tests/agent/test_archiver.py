"""One stream's archiver: nothing lost, nothing invented, oldest first, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import threading
from dataclasses import replace

import pytest

from coldstream.agent import archiver, losses, slice_delivery
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archive_reads import StagingActivity
from coldstream.agent.losses import UNSEEN
from coldstream.agent.proof import broker as proof
from coldstream.agent.rules import Rules
from coldstream.agent.stream_file import RememberedStream, StreamFile
from coldstream.agent.stream_state import StreamState
from coldstream.errors import AccessDeniedError
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.repair import DAMAGED, plan_range_removal
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs
from tests.support.removing import delete, remove_prefix, undelete
from tests.support.rig import Rig, losses_are_announced

pytestmark = pytest.mark.usefixtures("quick")


async def test_rolled_segments_are_archived_in_order_and_let_go(rig):
    rig.stream.publish(500)
    async with rig.running():
        await rig.catches_up()
        rig.stream.publish(500)
        await rig.catches_up()
    assert rig.bus.announced == sorted(rig.bus.announced)
    assert len(rig.bus.announced) == len(rig.stream.segments) - 1
    assert rig.pins == [int(rig.stream.segments[-1].stem)]


async def test_what_retention_deletes_meanwhile_is_archived_all_the_same(rig):
    rig.functions_run = False
    async with rig.running():
        for _ in range(10):
            rig.stream.publish(100)
            there = {int(path.stem) for path in rig.stream.segments}
            await rig.until(lambda there=there: there <= {*rig.pins})
            rig.stream.retain(2)
        await rig.until(lambda: rig.bus.announced)
        assert len(rig.pins) > 10
        rig.functions_run = True
        await rig.catches_up()
    assert rig.bus.lost == []


async def test_nothing_is_announced_before_the_broker_delivers_it(rig):
    rig.stream.publish(500)
    second = int(rig.stream.segments[1].stem)
    rig.stream.committed_to = second
    async with rig.running():
        await rig.until(lambda: rig.archived_to == second)
        await asyncio.sleep(0.2)
        assert rig.bus.announced == [(0, second)]
        rig.stream.committed_to = None
        await rig.catches_up()


async def test_chunks_that_the_broker_does_not_have_are_never_archived(rig, node):
    """This replica's log has gone another way: the broker delivers other chunks at these offsets."""
    rig.stream.publish(500)
    other = node.declare("elsewhere")
    other.publish(500, size=400)
    async with rig.running() as archiver:
        await rig.catches_up()
        tail = rig.archived_to
        node.streams["/", "orders"], ours = other, rig.stream
        ours.publish(500)
        other.publish(1000, size=400)
        await rig.until(lambda: archiver.failures.text is not None)
        await asyncio.sleep(0.2)
        assert rig.archived_to == tail
        assert "this replica is behind" in archiver.failures.text
    ours.close()


async def test_an_outage_of_the_archive_delays_and_loses_nothing(rig):
    rig.bus.is_down = True
    rig.stream.publish(300)
    async with rig.running():
        await asyncio.sleep(0.2)
        rig.stream.publish(300)
        await asyncio.sleep(0.1)
        rig.stream.retain(1)
        assert rig.bus.announced == []
        assert b'kind="unavailable"' in rig.scrape()
        rig.bus.is_down = False
        await rig.catches_up()
    assert rig.bus.lost == []


@pytest.mark.parametrize("trouble", ["the listing is refused", "the disk is full"])
async def test_losses_that_cannot_be_told_keep_nothing_from_being_archived(rig, monkeypatch, trouble):
    """On a full disk archiving makes room; and the policy of an earlier release does not allow the listing."""

    async def refuse(*_: object) -> StagingActivity:
        raise AccessDeniedError("s3:ListBucketMultipartUploads")

    def full(_: StreamFile, memory: RememberedStream, *, durably: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if trouble == "the disk is full":
            patch.setattr(StreamFile, "save", full)
        else:
            patch.setattr(ArchiveClient, "staging", refuse)
        rig.stream.publish(500)
        rig.stream.retain(5)
        first = int(rig.stream.segments[0].stem)
        async with rig.running() as archiver:
            await rig.until(lambda: archiver.last_failure is not None)
            rig.stream.publish(500)
            await rig.until(lambda: rig.archived and rig.archived[-1][1] == int(rig.stream.segments[-1].stem))
            await rig.until(lambda: not rig.pins[:-1])
            await rig.until(lambda: archiver.last_failure is not None)
            assert rig.bus.lost == []
            patch.undo()
            await losses_are_announced(rig, archiver)
            await rig.until(lambda: archiver.last_failure is None)
    assert rig.bus.lost == [(0, first, UNSEEN)]


async def test_an_outage_of_the_broker_delays_and_loses_nothing(rig, node):
    node.is_down = True
    rig.stream.publish(300)
    async with rig.running():
        await asyncio.sleep(0.2)
        assert rig.bus.announced == []
        node.is_down = False
        await rig.catches_up()


@pytest.mark.parametrize("seed", range(5))
async def test_an_archiver_that_is_killed_again_and_again_never_loses_its_place(rig, seed):
    rng = random.Random(seed)
    for _ in range(12):
        rig.stream.publish(rng.randrange(10, 200))
        async with rig.running():
            await asyncio.sleep(rng.random() * 0.05)
        rig.functions_run = rng.random() < 0.7
        if rng.random() < 0.2:
            for path in (rig.tmp_path / "state/streams").glob("*"):
                path.unlink()
    rig.functions_run = True
    async with rig.running():
        await rig.catches_up()
    assert rig.bus.lost == []


async def test_what_was_deleted_while_the_agent_was_away_is_a_loss_that_is_told(rig):
    rig.stream.publish(200)
    async with rig.running():
        await rig.catches_up()
    tail = rig.archived_to
    rig.stream.publish(500)
    rig.stream.retain(1)
    newest = int(rig.stream.segments[0].stem)
    active_end = None
    async with rig.running():
        # The segment that was active was pinned, and is whole.
        await rig.until(lambda: rig.bus.lost)
        (first, after, reason) = rig.bus.lost[0]
        active_end = first
        assert tail < active_end < after == newest
        assert reason == "deleted by the broker's retention before the agent of here had them"
        rig.stream.publish(200)
        await rig.until(lambda: rig.archived and rig.archived[-1][1] == int(rig.stream.segments[-1].stem))
    assert (newest, newest) not in rig.archived
    assert [entry for entry in rig.archived if entry[0] < active_end][-1][1] == active_end


async def test_what_was_deleted_before_the_agent_came_is_announced_and_the_rest_archived(rig):
    rig.stream.publish(500)
    rig.stream.retain(3)
    first, *_, active = (int(path.stem) for path in rig.stream.segments)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.archived and rig.archived[-1][1] == active)
        await losses_are_announced(rig, archiver)
        status = await archiver.status(None)
    assert rig.archived[0][0] == first
    assert rig.bus.lost == [(0, first, UNSEEN)]
    assert (status.complete_from, status.incomplete_because) == (first, UNSEEN)


async def test_what_was_deleted_while_the_agent_was_away_is_told_though_nothing_rolls(rig):
    rig.stream.publish(200)
    async with rig.running():
        await rig.catches_up()
    tail = rig.archived_to
    shutil.rmtree(rig.tmp_path / "state")
    rig.stream.publish(500)
    rig.stream.retain(1)
    (begins,) = (int(path.stem) for path in rig.stream.segments)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.bus.lost)
        await losses_are_announced(rig, archiver)
    assert [loss[:2] for loss in rig.bus.lost] == [(tail, begins)]
    assert rig.archived_to == tail


async def test_what_another_replicas_agent_still_has_is_not_lost(rig, node):
    """Its broker has deleted it as well, but that agent has pinned everything and waits for the function."""
    other = Rig(rig.tmp_path / "other", node, rig.stream)
    other.archive, other.bus = rig.archive, rig.bus
    rig.functions_run = other.functions_run = False
    rig.stream.publish(500)
    async with other.running():
        await rig.until(lambda: rig.bus.announced)
        rig.stream.publish(200)
        await rig.until(lambda: int(rig.stream.segments[-1].stem) in other.pins)
        rig.stream.retain(1)
        (begins,) = (int(path.stem) for path in rig.stream.segments)
        async with rig.running() as archiver:
            await rig.until(lambda: archiver.losses.are_suspected)
            await asyncio.sleep(5 * losses.SUSPICION_S)
            rig.functions_run = other.functions_run = True
            await rig.until(lambda: rig.archived_to == begins)
            await losses_are_announced(rig, archiver)
    assert rig.bus.lost == []


async def test_a_deleted_stream_is_archived_as_far_as_it_was_proven_and_the_rest_is_told(rig, node):
    rig.stream.publish(300)
    last = rig.stream.next_offset
    async with rig.running() as archiver:
        await rig.catches_up()
        tail = rig.archived_to
        node.delete("orders")
        await rig.until(lambda: archiver.state == "deleted" and not any((rig.tmp_path / "state/streams").iterdir()))
    assert rig.bus.lost == [(tail, last, "deleted before they were known to be committed")]
    assert rig.pins == []


async def test_a_stream_declared_again_is_another_and_the_old_one_ends(rig, node):
    rig.stream.publish(300)
    async with rig.running() as archiver:
        await rig.catches_up()
        node.delete("orders")
        again = node.declare("orders")
        again.publish(300, size=400)
        await rig.until(lambda: archiver.state == "deleted")
    assert again.incarnation != rig.stream.incarnation


async def test_a_stream_that_is_excluded_is_let_go(rig):
    rig.rules = Rules(exclude=("ord*",))
    rig.stream.publish(300)
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.state == "excluded" and not rig.pins)
    assert rig.bus.announced == []


async def test_with_a_max_lag_quiet_streams_are_archived_without_a_roll(tmp_path, node, monkeypatch):
    stream = node.declare("orders")
    rig = Rig(tmp_path, node, stream, every_ms=1000)
    stream.publish(20)
    stream.store_offset()
    async with rig.running():
        # The clock of the node stands in the past: every span is over.
        await rig.until(lambda: rig.archived_to == 20)
    assert len(stream.segments) == 1


async def test_tracking_chunks_at_the_end_of_a_deleted_stream_are_no_loss(tmp_path, node):
    """They hold no message, and every stream whose consumers store their offsets ends in them."""
    stream = node.declare("orders")
    rig = Rig(tmp_path, node, stream, every_ms=1000)
    stream.publish(20)
    stream.store_offset()
    async with rig.running() as archiver:
        await rig.until(lambda: rig.archived_to == 20)
        node.delete("orders")
        await rig.until(lambda: archiver.state == "deleted")
    assert rig.bus.lost == []
    assert b'lost_offsets_total{stream="orders",vhost="/"} 0.0' in rig.scrape()


async def test_messages_before_the_tracking_chunks_of_a_deleted_stream_are_a_loss_where_nothing_proved_them(
    tmp_path, node
):
    stream = node.declare("orders")
    rig = Rig(tmp_path, node, stream, every_ms=1000)
    stream.publish(20)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.archived_to == 20)
        stream.committed_to = 20
        stream.publish(20)
        stream.store_offset()
        await rig.until(lambda: archiver.disk.log.next_offset() == 41)
        node.delete("orders")
        await rig.until(lambda: archiver.state == "deleted")
        await losses_are_announced(rig, archiver)
    assert [(first, after) for first, after, _ in rig.bus.lost] == [(20, 41)]


@pytest.mark.parametrize("seed", range(3))
async def test_a_max_lag_changes_nothing_in_what_is_archived(tmp_path, node, seed):
    """Fragments are the same, byte for byte, whether the agent ran all the time, or came when all had rolled."""
    rng = random.Random(seed)
    stream = node.declare("orders")
    often, late = (
        Rig(tmp_path / "often", node, stream, every_ms=1000),
        Rig(tmp_path / "late", node, stream, every_ms=1000),
    )
    for _ in range(15):
        for _ in range(3):
            stream.publish(rng.randrange(10, 60), step_ms=rng.choice([1, 100, 700]))
            if rng.random() < 0.4:
                stream.store_offset()
            # A quiet span, so that closing it by the clock is right.
        async with often.running():
            await asyncio.sleep(0.08)
        stream.now += 2500
    async with often.running(), late.running():
        await often.until(lambda: often.archived_to >= stream.next_offset - 3)
        await late.until(lambda: late.archived_to == often.archived_to)
    assert often.archived == late.archived
    keys = {
        entry.key
        for rig in (often, late)
        for entry in rig.archive.table.log_from_offset(Incarnation(stream.incarnation), Offset(0), 10_000).entries
    }
    assert all(often.archive.body(key) == late.archive.body(key) for key in keys)


async def test_a_damaged_segment_goes_to_quarantine_and_the_next_ones_are_archived(rig):
    rig.stream.publish(500)
    damaged = rig.stream.segments[1]
    content = bytearray(damaged.read_bytes())
    content[3000] ^= 1
    damaged.write_bytes(content)
    async with rig.running():
        await rig.until(lambda: rig.archived and rig.archived[-1][1] == int(rig.stream.segments[-1].stem))
        await rig.until(lambda: not rig.pins[:-1])
    text = rig.scrape().decode()
    assert 'coldstream_agent_quarantined_segments_total{stream="orders",vhost="/"} 1.0' in text


async def test_an_event_that_came_to_nothing_is_announced_again(rig, monkeypatch):
    monkeypatch.setattr(slice_delivery, "ANNOUNCE_AGAIN_S", 0.1)
    rig.stream.publish(200)
    rig.functions_run = False
    async with rig.running():
        await rig.until(lambda: len(rig.bus.waiting) == 1)
        rig.bus.waiting.clear()
        await rig.until(lambda: len(rig.bus.waiting) == 1)
        rig.functions_run = True
        await rig.catches_up()


async def test_pins_are_given_up_only_when_told_and_the_gap_says_why(rig):
    rig.stream.committed_to = 30
    rig.stream.publish(500)
    async with rig.running() as archiver:
        await rig.until(lambda: len(rig.pins) > 2 and archiver.stream is not None)
        first, second = rig.pins[:2]
        rig.stream.retain(1)
        await archiver.give_up_oldest("the disk of here was nearly full before they were archived")
        assert rig.pins[0] == second
        rig.stream.committed_to = None
        await rig.until(lambda: rig.archived and rig.archived[-1][1] == int(rig.stream.segments[-1].stem))
    assert rig.bus.lost == [(first, second, "the disk of here was nearly full before they were archived")]
    assert rig.archived[0][0] == second


async def test_what_is_given_up_while_the_disk_is_looked_at_is_lost_once(rig, monkeypatch):
    rig.stream.committed_to = 30
    rig.stream.publish(500)
    async with rig.running() as archiver:
        await rig.until(lambda: len(rig.pins) > 2 and archiver.stream is not None)
        first, second = rig.pins[:2]
        rig.stream.retain(1)
        oldest, begun, goes_on = archiver.disk.oldest, threading.Event(), threading.Event()

        def found_slowly():
            begun.set()
            assert goes_on.wait(10)
            return oldest()

        monkeypatch.setattr(archiver.disk, "oldest", found_slowly)
        giving_up = asyncio.create_task(archiver.give_up_oldest("no room"))
        await rig.until(begun.is_set)
        steps = [asyncio.create_task(archiver._step()) for _ in range(3)]
        await asyncio.sleep(0.05)  # they wait for their turn at the disk, and know the archive as it was
        goes_on.set()
        await asyncio.gather(giving_up, *steps)
        rig.stream.committed_to = None
        await rig.until(lambda: rig.archived and rig.archived[-1][1] == int(rig.stream.segments[-1].stem))
    assert rig.bus.lost == [(first, second, "no room")]


async def test_two_agents_make_one_copy(tmp_path, node):
    stream = node.declare("orders")
    one, two = Rig(tmp_path / "one", node, stream), Rig(tmp_path / "two", node, stream)
    two.archive = one.archive
    two.bus = one.bus
    stream.publish(500)
    async with one.running(), two.running():
        await one.catches_up()
        await two.catches_up()
    assert len(set(one.archived)) == len(one.archived)
    data = [key for key in one.archive.objects.objects if "/data/" in key]
    assert len(data) == len(one.archived)
    assert proof.PROBES_AT_ONCE > 0


async def test_the_agents_of_a_cluster_archive_for_it(rig):
    rig.archive.keys = replace(rig.archive.keys, cluster=Cluster("eu"))
    rig.stream.publish(500)
    async with rig.running():
        await rig.catches_up()
    assert rig.archive.table.bound_cluster("/", "orders") == "eu"


async def test_a_stream_of_another_cluster_is_told_and_neither_staged_nor_let_go(rig):
    rig.archive.table.bind_cluster("/", "orders", Cluster("us"))
    rig.stream.publish(500)
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.failures.text)
        assert "bound to cluster 'us'" in archiver.failures.text
    assert rig.archive.objects.requests["PutObject"] == 0
    assert rig.bus.announced == []
    assert len(rig.pins) == len(rig.stream.segments)
    assert 'kind="settings"' in rig.scrape().decode()


async def test_what_is_published_while_the_archive_has_deleted_the_stream_is_archived_once_that_is_undone(rig):
    incarnation = Incarnation(rig.stream.incarnation)
    rig.stream.publish(100)
    async with rig.running() as archiver:
        await rig.catches_up()
        delete(rig.archive.table, incarnation)
        tail = rig.archived_to
        for _ in range(5):
            rig.stream.publish(100)
            there = {first for path in rig.stream.segments if (first := int(path.stem)) >= tail}
            await rig.until(lambda there=there: there <= {*rig.pins})
            rig.stream.retain(2)
        await rig.until(lambda: archiver.failures.text and "StreamDeletedError" in archiver.failures.text)
        undelete(rig.archive.table, incarnation)
        await rig.catches_up()
    assert rig.bus.lost == []


async def test_what_is_pinned_of_a_stream_is_let_go_once_its_purge_has_begun(rig):
    incarnation = Incarnation(rig.stream.incarnation)
    rig.stream.publish(100)
    async with rig.running() as archiver:
        await rig.catches_up()
        delete(rig.archive.table, incarnation)
        rig.stream.publish(300)
        await rig.until(lambda: archiver.failures.text and "StreamDeletedError" in archiver.failures.text)
        assert len(rig.pins) > 3
        announced = len(rig.bus.announced)
        remove_prefix(rig.archive.table, incarnation, 1)
        await rig.until(lambda: len(rig.pins) == 1)
    # One may be announced, if the purge begins between the look at what is covered and the one at what is accepted.
    assert len(rig.bus.announced) <= announced + 1


def give_up(rig, number):
    """Give up an entry as the scrub does whose object is damaged."""
    table, incarnation = rig.archive.table, Incarnation(rig.stream.incarnation)
    entries = table.log_from_offset(incarnation, Offset(0), 1000).entries
    before, entry, following = entries[number - 1 : number + 2]
    rig.archive.objects.delete(entry.key)
    table.apply(
        plan_range_removal(
            table.head(incarnation),
            before,
            entry,
            following,
            missing=list(table.missing(incarnation)),
            holds=[],
            at=TimestampMs(0),
            due_at=TimestampMs(10**15),
            reason=DAMAGED,
            by="a test",
        )
    )
    return entry


@pytest.mark.parametrize("every_ms", [None, 1000])
async def test_what_was_damaged_is_archived_again_while_the_broker_has_it(rig, monkeypatch, every_ms):
    monkeypatch.setattr(archiver, "LOOK_BACK_SCANS", 2)
    rig.every_ms = every_ms
    rig.stream.publish(500)
    async with rig.running() as running:
        await rig.until(lambda: running.state is StreamState.FOLLOWING and rig.archived)
        whole, archived_to = rig.archived, running.progress.archived_to
        damaged = give_up(rig, len(whole) // 2)
        assert (damaged.first_offset, damaged.next_offset) not in rig.archived
        await rig.until(lambda: rig.archived == whole)
        await rig.until(lambda: running.progress.archived_to == archived_to)
        announced = len(rig.bus.announced)
        await rig.until(lambda: len(rig.pins) == 1)
        rig.stream.publish(500)
        await rig.until(lambda: rig.archived_to >= int(rig.stream.segments[-1].stem))
    assert len(rig.bus.announced) > announced
    assert rig.bus.lost == []


async def test_what_was_damaged_stays_a_gap_if_the_broker_has_it_no_more(rig, monkeypatch):
    monkeypatch.setattr(archiver, "LOOK_BACK_SCANS", 1)
    rig.stream.publish(500)
    async with rig.running() as running:
        await rig.catches_up()
        archived_to = running.progress.archived_to
        rig.stream.retain(1)
        give_up(rig, 2)
        reads = []
        holes = ArchiveClient.holes

        async def noted(self, *arguments):
            found = await holes(self, *arguments)
            reads.append(found)
            return found

        monkeypatch.setattr(ArchiveClient, "holes", noted)
        await rig.until(lambda: len(reads) > 2)
        assert running.progress.archived_to == archived_to
    announced = [*rig.bus.announced]
    assert len(announced) == len(set(announced))
