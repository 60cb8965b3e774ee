"""Jobs that erase: what goes is gone once, whoever dies; what cannot be is told."""

from __future__ import annotations

import random
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.format.amqp.message import messages
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.run import JobRun
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.holds import release_hold
from coldstream.manifest.entry import ErasureState
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.units import Offset
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.erase import erasure_id_of, run_erase
from tests.erase.archived import MessageArchive, body_of, user_of
from tests.support.compacting import Calls, Killed
from tests.upkeep.world import StopsAfter, UpkeepWorld, hold, stream_of

ERASE: dict[str, Any] = {"stream": "orders", "reason": "ticket 4711"}
OF_USER = {**ERASE, "key": "user-3"}


def world_of(*fragments: int) -> tuple[UpkeepWorld, MessageArchive]:
    world = UpkeepWorld()
    return world, world.stream("orders", *(fragments or (4, 9, 3, 5)))


def erased_of(archive: MessageArchive) -> set[int]:
    """Return the offsets whose bodies no reader finds any more."""
    found: dict[int, bytes] = {}
    for step in plan_scan(archive.table, archive.stream, Offset(0)):
        for chunk in read_slice(archive.objects, step) if isinstance(step, ScanSlice) else ():
            found |= {message.offset: message.raw for message in messages(chunk, source="test")}
    assert set(found) == set(archive.published)
    return {offset for offset in found if body_of(offset) not in found[offset]}


def of_user_3(archive: MessageArchive) -> set[int]:
    return {offset for offset in archive.published if user_of(offset) == "user-3"}


def assert_erased_once(world: UpkeepWorld, archive: MessageArchive, job: Job) -> None:
    assert job.state is JobState.SUCCEEDED, job.reason
    assert erased_of(archive) == of_user_3(archive)
    (erasure,) = world.table.erasures(archive.stream.incarnation)
    assert (erasure.state, erasure.messages) == (ErasureState.DONE, len(of_user_3(archive)))
    assert erasure.id == erasure_id_of(job)
    assert list(world.stores().control.erasures(archive.stream.incarnation)) == [erasure]
    assert job.progress.messages == len(of_user_3(archive))
    assert (job.progress.done, job.progress.unit) == (job.progress.total, "bytes")


def test_what_is_selected_is_erased_and_the_journal_says_by_whom() -> None:
    world, archive = world_of()
    job = world.run("erase", **OF_USER)
    assert_erased_once(world, archive, job)
    (erasure,) = world.table.erasures(archive.stream.incarnation)
    assert (erasure.reason, erasure.by) == ("ticket 4711", f"ann by job {job.id}")
    assert "the old objects go with the first sweep after" in world.log(job.id)


def test_no_value_is_in_the_table() -> None:
    world, _ = world_of()
    job = world.run("erase", **ERASE, key="a.very.secret.key", offsets="0:40")
    assert job.state is JobState.SUCCEEDED, job.reason
    for partition in ("#jobs", "#open-jobs", "#job-keys"):
        for item in world.table.state_items(partition):
            assert b"a.very.secret.key" not in item.data
    assert "a.very.secret.key" not in world.log(job.id)


@pytest.mark.parametrize(("offsets", "expected"), [("10:13", {10, 11, 12}), (":2", {0, 1})])
def test_offsets_alone_are_erased(offsets: str, expected: set[int]) -> None:
    world, archive = world_of()
    assert world.run("erase", **ERASE, offsets=offsets).state is JobState.SUCCEEDED
    assert erased_of(archive) == expected


def test_offsets_and_values_must_both_meet() -> None:
    world, archive = world_of()
    world.run("erase", **OF_USER, offsets="0:20")
    assert erased_of(archive) == {offset for offset in of_user_3(archive) if offset < 20}


def test_offsets_without_an_end_reach_to_the_tail() -> None:
    world, archive = world_of()
    world.run("erase", **ERASE, offsets="100:")
    assert erased_of(archive) == {offset for offset in archive.published if offset >= 100}


def test_an_incarnation_can_be_named() -> None:
    world, archive = world_of()
    again = world.stream("orders", 4, declared=2)
    world.run("erase", **ERASE, offsets="0:2", incarnation=archive.stream.incarnation)
    assert (erased_of(archive), erased_of(again)) == ({0, 1}, set())
    world.run("erase", **ERASE, offsets="0:2")
    assert erased_of(again) == {0, 1}


def test_a_run_that_began_stays_with_its_incarnation() -> None:
    world, archive = world_of()
    job = world.create("erase", **OF_USER)
    world.attempt(job.id, should_stop=StopsAfter(3))
    again = world.stream("orders", 4, declared=2)
    assert_erased_once(world, archive, world.finish(job.id))
    assert erased_of(again) == set()


@pytest.mark.parametrize("questions", range(40))
def test_a_run_that_is_stopped_at_any_place_goes_on_from_there(questions: int) -> None:
    world, archive = world_of()
    job = world.create("erase", **OF_USER)
    world.attempt(job.id, should_stop=StopsAfter(questions))
    assert_erased_once(world, archive, world.finish(job.id))


@pytest.mark.parametrize("seed", range(80))
def test_workers_that_die_anywhere_never_begin_a_second_erasure(seed: int) -> None:
    rng = random.Random(seed)
    world, archive = world_of()
    job = world.create("erase", **OF_USER, max_attempts=100, with_other_copies=True)
    deaths = 0
    while True:
        at = rng.randrange(1, 140)

        def die(number: int, _: str, is_done: bool, at: int = at, after: bool = rng.random() < 0.5) -> None:  # noqa: FBT001
            if number >= at and is_done is after:
                raise Killed

        try:
            world.attempt(
                job.id,
                calls=Calls(world.table, world.objects, die),
                takes_over=bool(deaths),
                writes=lambda: rng.random() < 0.5,
            )
        except Killed:
            deaths += 1
            assert len(world.table.erasures(archive.stream.incarnation)) <= 1
            continue
        break
    assert_erased_once(world, archive, world.jobs.get(job.id))


def test_a_worker_that_was_taken_over_while_it_began_begins_nothing_more() -> None:
    world, archive = world_of()
    job = world.create("erase", **OF_USER)
    first = acquire(world.jobs, job, "slow", now=world.clock)
    assert first is not None
    ended: list[Job] = []

    def meanwhile(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        # Right before the slow one writes its erasure, another takes the job over and ends it.
        if name == "apply" and not is_done and not ended:
            after = world.attempt(job.id, takes_over=True)
            assert after is not None
            ended.append(after)

    calls = Calls(world.table, world.objects, meanwhile)
    run = JobRun(world.jobs, first, now=world.clock)
    run_erase(run, UpkeepArchive(world.stores(calls)))
    assert_erased_once(world, archive, ended[0])


def test_each_run_of_a_schedule_is_an_erasure_of_its_own() -> None:
    world, archive = world_of()
    job = world.create("erase", **OF_USER, schedule="every 1h")
    world.attempt(job.id)
    world.clock.pass_ms(3600 * 1000)
    after = world.attempt(job.id)
    assert after is not None
    assert (after.runs, after.failed_runs) == (2, 0)
    assert len(world.table.erasures(archive.stream.incarnation)) == 2
    assert erased_of(archive) == of_user_3(archive)


def test_what_a_hold_protects_is_not_erased_and_the_reason_says_so() -> None:
    world, archive = world_of()
    hold_id = hold(world, archive.stream, 20, 30)
    job = world.run("erase", **OF_USER)
    assert job.state is JobState.FAILED
    assert hold_id in job.reason
    assert erased_of(archive) == set()
    assert world.table.erasures(archive.stream.incarnation) == ()


def test_a_hold_that_comes_meanwhile_stops_it_and_once_it_is_released_the_job_goes_on() -> None:
    world, archive = world_of()
    job = world.create("erase", **OF_USER)
    held: list[str] = []

    def put(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "put_new" and is_done and not held:
            held.append(hold(world, archive.stream, 0, None))

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, put))
    assert after is not None
    assert after.state is JobState.FAILED
    assert held[0] in after.reason
    release_hold(world.stores(), archive.stream.incarnation, held[0], by="eve")
    world.jobs.resume(job.id)
    assert_erased_once(world, archive, world.finish(job.id))


def test_a_stream_that_is_deleted_meanwhile_ends_it_with_the_reason() -> None:
    world, archive = world_of()
    job = world.create("erase", **OF_USER)
    world.attempt(job.id, should_stop=StopsAfter(1))
    assert len(world.table.erasures(archive.stream.incarnation)) == 1
    delete_stream(world.stores(), archive.stream.incarnation, grace_ms=0, by="eve")
    after = world.finish(job.id)
    assert after.state is JobState.FAILED
    assert "deleted" in after.reason


def test_a_stream_that_is_not_there_fails_the_job() -> None:
    world, _ = world_of()
    job = world.run("erase", stream="bills", offsets="0:1", reason="x")
    assert job.state is JobState.FAILED
    assert "no stream 'bills' in vhost '/'" in job.reason


def test_other_copies_stop_it_unless_they_may_go() -> None:
    world, archive = world_of()
    key = world.stores().keys.fragment(archive.stream.incarnation, archive.log[1].first_offset, 7)
    world.objects.put(key, world.objects.objects[archive.log[1].key])
    world.clock.pass_ms(48 * 3600 * 1000)
    job = world.run("erase", **OF_USER)
    assert job.state is JobState.FAILED
    assert key in job.reason
    assert "with_other_copies deletes first" in job.reason
    again = world.run("erase", **OF_USER, with_other_copies=True)
    assert_erased_once(world, archive, again)
    assert "1 other copies were deleted" in world.log(again.id)


def test_gaps_in_the_range_are_told_as_skipped() -> None:
    world, archive = world_of(4, 4)
    archive._next_offset += 5
    archive.add(4)
    job = world.run("erase", **ERASE, offsets=f"0:{archive._next_offset}")
    assert job.state is JobState.FAILED
    assert "1 skipped" in job.reason
    assert "what is not archived there cannot be erased" in job.reason
    assert erased_of(archive) == set(archive.published)
    allowed = world.run("erase", **ERASE, offsets=f"0:{archive._next_offset}", allow_skipped=True)
    assert allowed.state is JobState.SUCCEEDED
    assert allowed.skipped.count == 1


def test_messages_that_cannot_be_read_are_told_as_skipped_even_if_the_worker_dies() -> None:
    world = UpkeepWorld()
    archive = MessageArchive(
        stream_of("orders"),
        message=lambda offset: b"\x00\x53\x99" if offset in {3, 9, 40} else b"\x00\x53\x75\xa0\x01x",
        objects=world.objects,
        table=world.table,
    )
    for _ in range(4):
        archive.add(3)
    job = world.create("erase", **OF_USER, max_attempts=100)
    rng = random.Random(5)
    deaths = 0
    while True:
        at = rng.randrange(1, 45)

        def die(number: int, _: str, is_done: bool, at: int = at) -> None:  # noqa: FBT001
            if number >= at and not is_done:
                raise Killed

        try:
            world.attempt(job.id, calls=Calls(world.table, world.objects, die), takes_over=bool(deaths))
        except Killed:
            deaths += 1
            continue
        break
    ended = world.jobs.get(job.id)
    assert deaths > 2
    assert ended.state is JobState.FAILED
    assert ended.skipped.count == 3
    assert "their AMQP cannot be read" in ended.reason


def test_a_service_that_does_not_answer_is_tried_again() -> None:
    world, archive = world_of()
    job = world.create("erase", **OF_USER)
    puts: list[str] = []

    def refuse(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "put_new" and not is_done:
            puts.append(name)
            if len(puts) == 2:
                raise UnavailableError("S3 does not answer")

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, refuse))
    assert after is not None
    assert after.state is JobState.WAITING
    assert_erased_once(world, archive, world.finish(job.id))
