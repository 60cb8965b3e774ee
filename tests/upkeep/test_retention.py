"""Jobs that apply the policies: what goes, what is held, and runs that are stopped or die."""

from __future__ import annotations

import random

import pytest

from coldstream.errors import ObjectNotFoundError, UnavailableError
from coldstream.jobs.job import JobState
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.policies import set_policy
from coldstream.manifest.entry import StorageClass
from coldstream.manifest.policy import Policy
from tests.support.compacting import Calls, Killed
from tests.upkeep.world import StopsAfter, UpkeepWorld, hold, stream_of


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of a test are small, and move all the same."""
    monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 0)


def world_of(streams: int = 3, fragments: int = 4) -> UpkeepWorld:
    """Streams of which a policy keeps nothing but one fragment's worth of bytes."""
    world = UpkeepWorld()
    for number in range(streams):
        world.stream(f"orders.{number}", *[3] * fragments)
    return world


def keep(world: UpkeepWorld, pattern: str, fragments: int, name: str = "small") -> None:
    """Set a policy that keeps so many fragments of each stream."""
    size = max(entry.object_bytes for archive in world.streams.values() for entry in archive.log)
    set_policy(world.stores(), Policy(name, pattern, max_bytes=fragments * size))


def lengths(world: UpkeepWorld) -> list[int]:
    return [len(archive.log) for archive in world.streams.values()]


def test_what_the_policies_let_go_is_removed_and_counted() -> None:
    world = world_of()
    keep(world, "*/orders.*", 1)
    job = world.run("retention")
    assert job.state is JobState.SUCCEEDED, job.reason
    assert lengths(world) == [1, 1, 1]
    assert (job.progress.done, job.progress.total, job.progress.unit) == (3, 3, "streams")
    assert job.progress.messages == 3 * 3 * 18
    assert job.progress.bytes > 0
    assert "by policy small, 3 fragments of" in world.log(job.id)
    assert "9 fragments were removed, 0 moved" in world.log(job.id)


def test_without_a_policy_everything_stays() -> None:
    world = world_of()
    assert world.run("retention").state is JobState.SUCCEEDED
    assert lengths(world) == [4, 4, 4]


def test_a_dry_run_tells_what_would_go_and_removes_nothing() -> None:
    world = world_of()
    keep(world, "*/*", 1)
    job = world.run("retention", dry_run=True, streams=["orders.1"])
    assert job.state is JobState.SUCCEEDED
    assert lengths(world) == [4, 4, 4]
    assert "3 fragments of" in world.log(job.id)
    assert "would be removed" in world.log(job.id)
    assert "9 fragments would be removed" not in world.log(job.id)


def test_only_what_is_named_is_touched() -> None:
    world = world_of()
    keep(world, "*/*", 1)
    world.run("retention", streams=["orders.1", "*.2"])
    assert lengths(world) == [4, 1, 1]


def test_what_a_hold_keeps_fails_the_job_and_the_others_go() -> None:
    world = world_of()
    keep(world, "*/*", 1)
    stream = stream_of("orders.1")
    hold_id = hold(world, stream, int(world.streams[stream].log[1].first_offset), None)
    job = world.run("retention")
    assert job.state is JobState.FAILED
    assert job.skipped.count == 1
    assert f"the legal hold {hold_id} keeps what policy small lets go" in job.reason
    assert lengths(world) == [1, 3, 1]
    assert world.run("retention", dry_run=True).state is JobState.SUCCEEDED


def test_deleted_streams_are_passed_over() -> None:
    world = world_of()
    keep(world, "*/*", 1)
    delete_stream(world.stores(), stream_of("orders.0").incarnation, grace_ms=0, by="eve")
    job = world.run("retention")
    assert job.state is JobState.SUCCEEDED, job.reason
    assert lengths(world) == [4, 1, 1]
    assert job.progress.done == 3


def test_an_error_of_one_stream_that_stays_is_told_and_the_others_are_done() -> None:
    world = world_of()
    age = 30 * 24 * 3600 * 1000
    set_policy(world.stores(), Policy("cold", "*/*", storage_class=StorageClass.STANDARD_IA, storage_class_age_ms=0))
    entry = world.streams[stream_of("orders.1")].log[2]
    del world.objects.objects[entry.key]
    world.clock.pass_ms(age)
    job = world.run("retention")
    assert job.state is JobState.FAILED
    assert job.skipped.count == 1
    assert entry.key in job.reason
    assert str(ObjectNotFoundError(entry.key)) in job.reason
    classes = [
        [one.storage_class for one in archive.log].count(StorageClass.STANDARD_IA) for archive in world.streams.values()
    ]
    assert classes == [4, 2, 4]


@pytest.mark.parametrize("questions", range(14))
def test_a_run_that_is_stopped_at_any_place_goes_on_from_there(questions: int) -> None:
    world = world_of()
    keep(world, "*/*", 1)
    job = world.create("retention")
    stopped = world.attempt(job.id, should_stop=StopsAfter(questions))
    assert stopped is not None
    ended = world.finish(job.id)
    assert ended.state is JobState.SUCCEEDED
    assert lengths(world) == [1, 1, 1]
    assert ended.progress.messages == 3 * 3 * 18
    assert ended.progress.done == 3


def test_a_pause_that_is_taken_back_at_once_ends_nothing_early() -> None:
    world = world_of()
    keep(world, "*/*", 1)
    answers = iter([False, True])
    job = world.create("retention")
    after = world.attempt(job.id, should_stop=lambda: next(answers, False))
    assert after is not None
    assert after.state is JobState.WAITING
    assert world.finish(job.id).state is JobState.SUCCEEDED
    assert lengths(world) == [1, 1, 1]


@pytest.mark.parametrize("seed", range(40))
def test_workers_that_die_anywhere_are_taken_over(seed: int) -> None:
    rng = random.Random(seed)
    world = world_of()
    keep(world, "*/*", 1)
    job = world.create("retention", max_attempts=100)
    deaths = 0
    while True:
        at = rng.randrange(1, 80)

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
            continue
        break
    assert world.jobs.get(job.id).state is JobState.SUCCEEDED
    assert lengths(world) == [1, 1, 1]


def test_a_service_that_does_not_answer_is_tried_again() -> None:
    world = world_of()
    keep(world, "*/*", 1)
    job = world.create("retention")
    applied: list[str] = []

    def refuse(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "apply" and not is_done:
            applied.append(name)
            if len(applied) == 2:
                raise UnavailableError("DynamoDB does not answer")

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, refuse))
    assert after is not None
    assert (after.state, after.progress.failures) == (JobState.WAITING, 1)
    assert sorted(lengths(world)) == [1, 4, 4]
    assert world.finish(job.id).state is JobState.SUCCEEDED
    assert lengths(world) == [1, 1, 1]
