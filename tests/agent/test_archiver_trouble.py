"""One stream's archiver in trouble: leaders lost, streams deleted, replicas made anew, full disks, crashes."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from coldstream.agent import stream_delivery
from coldstream.agent.disk.slices import next_slices
from coldstream.agent.disk.stream_disk import ReleasableSegment
from coldstream.agent.rules import Rules
from coldstream.format.chunk import ChunkHeader
from coldstream.units import Offset
from tests.support.rig import archived_up_to_the_last_roll, chunks_archived, committed, losses_are_announced, starts

pytestmark = pytest.mark.usefixtures("quick")


async def test_pins_of_a_stream_that_was_deleted_while_the_agent_was_away_are_archived(rig, stream):
    stream.publish(30)
    last = starts(stream)[-1]
    rig.functions_run = False
    async with rig.running() as archiver:
        await rig.until(lambda: rig.bus.announced and archiver.identity.committed_to >= last)
    stream.delete()
    rig.functions_run = True
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.state == "deleted" and not rig.pins)
    assert chunks_archived(rig) == committed(stream, last)
    assert [loss[:2] for loss in rig.bus.lost] == [(last, stream.next_offset)]


async def test_what_rolled_during_an_outage_of_aws_outlives_the_deletion_of_its_stream(rig, stream):
    stream.publish(10)
    async with rig.running() as archiver:
        await archived_up_to_the_last_roll(rig, stream)
        rig.bus.is_down = True
        for _ in range(5):
            stream.publish(10)
            await asyncio.sleep(0.02)
        last = starts(stream)[-1]
        await rig.until(lambda: archiver.identity.committed_to >= last)
        stream.delete()
        await asyncio.sleep(0.1)
        rig.bus.is_down = False
        await rig.until(lambda: archiver.state == "deleted")
    assert chunks_archived(rig) == committed(stream, last)


async def test_a_deleted_stream_is_archived_up_to_the_very_chunk_that_was_proven(rig, stream):
    stream.publish(4)
    proven = stream.log[1].header.next_offset
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.stream is not None and rig.pins)
        identity = archiver.identity
        identity._save(replace(identity._remembered, committed_to=Offset(proven)))
        stream.delete()
        await rig.until(lambda: archiver.state == "deleted")
    assert chunks_archived(rig) == committed(stream, proven)
    assert [loss[:2] for loss in rig.bus.lost] == [(proven, stream.next_offset)]


async def test_an_excluded_stream_is_pinned_no_more(rig, stream):
    rig.rules = Rules(exclude=("ord*",))
    stream.publish(30)
    stream.is_down = True
    archiver = rig.new_archiver()
    task = asyncio.create_task(archiver.run())
    await rig.until(lambda: rig.pins == starts(stream) and archiver.failures.text)
    stream.is_down = False
    async with asyncio.timeout(10):
        await task
    assert archiver.state == "excluded"
    await asyncio.sleep(0.1)
    assert rig.pins == []


async def test_retention_that_deletes_newer_segments_first_takes_no_pin(rig, stream):
    """Osiris does so by max-length-bytes, and the agent may look at any moment in between."""
    rig.functions_run = False
    stream.publish(60)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream))
        for path in stream.expendable(2):
            stream.delete_file(path)
            archiver.wake()
            await asyncio.sleep(0.01)
        rig.functions_run = True
        await archived_up_to_the_last_roll(rig, stream)
    assert rig.bus.lost == []
    assert chunks_archived(rig) == committed(stream, starts(stream)[-1])


async def test_a_stream_whose_files_are_deleted_in_any_order_keeps_its_pins(rig, stream):
    rig.functions_run = False
    stream.publish(60)
    last = starts(stream)[-1]
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream) and archiver.identity.committed_to >= last)
        for path in [*stream.segments[1:], stream.segments[0]]:
            path.unlink()
            archiver.wake()
            await asyncio.sleep(0.01)
        stream.on_disk.clear()
        stream.directory.rmdir()
        stream.is_deleted = True
        rig.functions_run = True
        await rig.until(lambda: archiver.state == "deleted")
    assert rig.archived_to >= last
    assert chunks_archived(rig) == committed(stream, rig.archived_to)


@pytest.mark.parametrize("is_away", [False, True])
async def test_what_a_lost_leader_wrote_is_never_archived_and_what_replaced_it_is(rig, stream, is_away):
    stream.publish(12)
    async with rig.running():
        await archived_up_to_the_last_roll(rig, stream)
        stream.publish_alone(25)
        await rig.until(lambda: rig.pins[-1] == starts(stream)[-1])
        if not is_away:
            stream.lose_leader(20, messages=2)
            stream.truncate()
            await archived_up_to_the_last_roll(rig, stream)
    if is_away:
        stream.lose_leader(20, messages=2)
        stream.truncate()
    async with rig.running():
        await archived_up_to_the_last_roll(rig, stream)
        stream.publish(30)  # past what was truncated
        await archived_up_to_the_last_roll(rig, stream)
        await rig.until(lambda: rig.pins == starts(stream)[-1:])
    assert chunks_archived(rig) == committed(stream, starts(stream)[-1])
    assert rig.bus.lost == []


async def test_a_tail_that_is_cut_off_just_before_it_is_let_go_costs_nothing_of_what_replaces_it(
    rig, stream, monkeypatch
):
    stream.publish(12)
    async with rig.running() as archiver:
        await archived_up_to_the_last_roll(rig, stream)
        stream.publish_alone(25)
        await rig.until(lambda: rig.pins[-1] == starts(stream)[-1])
        refuted = archiver.disk.refuted
        is_truncated = threading.Event()

        def raced(chunk: ChunkHeader, archived_to: Offset) -> ReleasableSegment | None:
            if stream.alone:
                stream.truncate()
                # Not told by `alone`: this is a thread, and half of the files may be gone while that is empty already.
                is_truncated.set()
            return refuted(chunk, archived_to)

        monkeypatch.setattr(archiver.disk, "refuted", raced)
        stream.lose_leader(20, messages=2)
        await rig.until(is_truncated.is_set)
        await archived_up_to_the_last_roll(rig, stream)
    assert chunks_archived(rig) == committed(stream, starts(stream)[-1])
    assert rig.bus.lost == []


async def test_a_leaders_tail_that_was_deleted_before_it_was_proven_is_no_part_of_what_came_later(rig, stream):
    """The stream was replicated again after a hole: its chunks say nothing about the file before the hole."""
    stream.publish(12)
    async with rig.running():
        await archived_up_to_the_last_roll(rig, stream)
    good = committed(stream, starts(stream)[-1])
    stream.publish_alone(3)  # into the active segment, which is pinned already
    stream.lose_leader(60, messages=2)
    stream.kept_from = stream.log[-25].header.chunk_id
    stream.make_anew()
    async with rig.running():
        await archived_up_to_the_last_roll(rig, stream)
        await rig.until(lambda: rig.pins == starts(stream)[-1:])
    archived = chunks_archived(rig)
    assert archived[: len(good)] == good
    assert all(header in committed(stream, stream.next_offset) for header in archived)
    assert rig.bus.lost


async def test_a_pin_that_can_be_proven_is_not_let_go_for_one_that_cannot(rig, stream):
    """Retention has deleted what the pin holds, and the broker delivers a chunk that is another one on this disk."""
    rig.bus.is_down = True
    rig.functions_run = False
    stream.publish(20)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream) and archiver.stream is not None)
    stream.publish_alone(30)
    async with rig.running():
        await rig.until(lambda: rig.pins == starts(stream))
    stream.lose_leader(40, messages=2)
    stream.truncate()
    rig.bus.is_down, rig.functions_run = False, True
    stream.retain(2)
    oldest = starts(stream)[0]
    async with rig.running() as archiver:
        await archived_up_to_the_last_roll(rig, stream)
        stream.publish(20)
        await archived_up_to_the_last_roll(rig, stream)
        await rig.until(lambda: rig.pins == starts(stream)[-1:])
        await losses_are_announced(rig, archiver)
    archived = chunks_archived(rig)
    assert all(header in committed(stream, stream.next_offset) for header in archived)
    # The segment that was truncated was pinned, and the broker went on in it; those after it came and went unseen.
    assert rig.archived[0] == (0, 18)
    lost = sorted(rig.bus.lost)
    assert rig.archived[3][1] == lost[0][0]
    assert lost[-1][1] == oldest == rig.archived[4][0]
    assert [after for _, after, _ in lost[:-1]] == [first for first, _, _ in lost[1:]]


async def test_what_is_proven_in_one_log_proves_nothing_in_another(rig, stream):
    """A lost leader's segment overlaps two that the broker has, and those are proven far past it."""
    rig.functions_run = False
    stream.publish(8)
    stream.publish_alone(9, messages=2)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream) and archiver.stream is not None)
    lost = starts(stream)[-1]
    stream.lose_leader(12, messages=1, size=250)
    stream.truncate()
    stream.publish(10)
    assert not {lost} & set(starts(stream))
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.identity.committed_to >= starts(stream)[-1])
    # Retention: the segment before the lost leader's is now no more live than that is.
    stream.retain(2)
    rig.functions_run = True
    async with rig.running():
        await archived_up_to_the_last_roll(rig, stream)
        await rig.until(lambda: rig.pins == starts(stream)[-1:])
    assert chunks_archived(rig) == committed(stream, starts(stream)[-1])
    assert rig.bus.quarantined == []


async def test_a_replica_made_anew_does_not_cost_what_is_pinned(rig, stream):
    """It is short at first, and the leader's retention may be faster than its replication."""
    rig.functions_run = False
    stream.publish(40)
    last = starts(stream)[-1]
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream) and archiver.identity.committed_to >= last)
        log, stream.log = stream.log, stream.log[:2]
        stream.make_anew()
        archiver.wake()
        await asyncio.sleep(0.1)
        stream.log = log
        stream.kept_from = log[-8].header.chunk_id
        stream.make_anew()
        archiver.wake()
        rig.functions_run = True
        stream.publish(20)
        await archived_up_to_the_last_roll(rig, stream)
        await rig.until(lambda: rig.archived[-1][1] == starts(stream)[-1])
    assert chunks_archived(rig) == committed(stream, starts(stream)[-1])
    assert rig.bus.lost == []


async def test_a_replica_that_was_removed_ends_when_all_of_it_is_archived(rig, stream):
    stream.publish(40)
    async with rig.running() as archiver:
        await archived_up_to_the_last_roll(rig, stream)
        await rig.until(lambda: starts(stream)[-1] in rig.pins)
        end = stream.next_offset
        stream.remove()
        await rig.until(lambda: archiver.state == "deleted" and not rig.pins)
    assert chunks_archived(rig) == committed(stream, end)
    assert rig.bus.lost == []


async def test_a_replica_that_is_removed_after_its_slices_were_cut_is_archived_to_its_end(rig, stream, monkeypatch):
    stream.publish(40)
    last, end = starts(stream)[-1], stream.next_offset

    def removed_after(log, archived_to, now):
        found = next_slices(log, archived_to, now)
        if found == [] and archived_to == last and stream.segments:
            stream.remove()
        return found

    monkeypatch.setattr(stream_delivery, "next_slices", removed_after)
    async with rig.running() as archiver:
        await rig.until(lambda: archiver.state == "deleted" and not rig.pins)
    assert chunks_archived(rig) == committed(stream, end)
    assert rig.bus.lost == []


async def test_a_broker_that_is_slow_to_deliver_costs_no_unnamed_stream_its_pins(rig, stream, monkeypatch):
    stream.publish(40)
    delivered = stream.probe

    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(stream, "probe", nothing)
    async with rig.running() as archiver:
        await rig.until(lambda: rig.pins == starts(stream) and archiver.state == "unnamed")
        stream.remove()
        archiver.wake()
        await asyncio.sleep(0.3)
        assert archiver.state != "deleted"
        monkeypatch.setattr(stream, "probe", delivered)
        await rig.until(lambda: archiver.state == "deleted")
    assert chunks_archived(rig) == committed(stream, stream.next_offset)
