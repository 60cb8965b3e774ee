"""Jobs that scrub: damages by kind, budgets, and passes that go on where they were."""

from __future__ import annotations

import random

import pytest

from coldstream.errors import UnavailableError
from coldstream.jobs.job import JobState
from coldstream.manifest.stream import StreamId
from coldstream.upkeep.scrub import PORTION_REQUESTS
from tests.support.compacting import Calls, Killed
from tests.upkeep.world import StopsAfter, UpkeepWorld, stream_of


def world_of(streams: int = 3, fragments: int = 4) -> UpkeepWorld:
    world = UpkeepWorld()
    for number in range(streams):
        archive = world.stream(f"orders.{number}", *[3] * fragments)
        world.stores().control.write_stream(archive.stream)
    world.clock.pass_ms(3 * 3600 * 1000)
    return world


def lose(world: UpkeepWorld, stream: StreamId, fragment: int) -> str:
    """Delete the object of a fragment, as nobody should."""
    key = world.streams[stream].log[fragment].key
    del world.objects.objects[key]
    return key


def without_note(world: UpkeepWorld, stream: StreamId) -> None:
    """Delete what the bucket says of a stream's names: damage that can be mended."""
    for key in [key for key in world.objects.objects if f"{stream.incarnation}/control/" in key]:
        del world.objects.objects[key]


@pytest.mark.parametrize("streams", [[], ["orders.*"], ["orders.0", "orders.1", "orders.2"]])
@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_archive_is_checked_to_its_end(streams: list[str], deep: bool) -> None:  # noqa: FBT001
    world = world_of()
    job = world.run("scrub", streams=streams, deep=deep)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert (job.progress.done, job.progress.total, job.progress.unit) == (12, 12, "fragments")
    assert job.progress.bytes > 0
    assert "12 fragments checked, 0 damages mended" in world.log(job.id)


def test_damages_fail_the_job_with_their_kinds_and_what_to_do() -> None:
    world = world_of()
    keys = [lose(world, stream_of("orders.1"), 1), lose(world, stream_of("orders.2"), 0)]
    for streams in ([], ["*"]):
        job = world.run("scrub", streams=streams, allow_skipped=True)
        assert job.state is JobState.FAILED
        assert "2 damages are not mended: 2 ObjectMissing; what to do: coldstream scrub orders." in job.reason
        assert all(key in world.log(job.id) for key in keys)


def test_only_what_is_named_is_looked_at() -> None:
    world = world_of()
    lose(world, stream_of("orders.1"), 1)
    assert world.run("scrub", streams=["orders.0", "orders.2"]).state is JobState.SUCCEEDED
    assert world.run("scrub", streams=["orders.1"]).state is JobState.FAILED


def test_what_is_mended_does_not_fail_the_job() -> None:
    world = world_of()
    without_note(world, stream_of("orders.1"))
    found = world.run("scrub")
    assert found.state is JobState.FAILED
    job = world.run("scrub", repair=True)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert "1 damages mended" in world.log(job.id)
    assert world.run("scrub").state is JobState.SUCCEEDED


def test_a_failed_scrub_that_is_resumed_looks_at_everything_anew() -> None:
    world = world_of()
    without_note(world, stream_of("orders.1"))
    job = world.run("scrub")
    assert job.state is JobState.FAILED
    world.stores().control.write_stream(stream_of("orders.1"))
    world.jobs.resume(job.id)
    again = world.finish(job.id)
    assert again.state is JobState.SUCCEEDED, again.reason
    assert again.progress.done == 12


def test_what_waits_for_a_sweep_is_no_damage_where_none_runs() -> None:
    for may_sweep in (True, False):
        world = world_of(1)
        world.may_sweep = False
        world.run("compact")
        world.may_sweep = may_sweep
        world.clock.pass_ms(30 * 24 * 3600 * 1000)
        job = world.run("scrub")
        assert job.state is (JobState.FAILED if may_sweep else JobState.SUCCEEDED)
        assert may_sweep or "objects wait for a sweep, and none runs by itself" in world.log(job.id)


@pytest.mark.parametrize("streams", [[], ["orders.*"]])
@pytest.mark.parametrize("questions", range(0, 90, 3))
def test_a_run_that_is_stopped_at_any_place_goes_on_and_finds_each_damage_once(
    streams: list[str], questions: int
) -> None:
    world = world_of()
    lose(world, stream_of("orders.0"), 2)
    lose(world, stream_of("orders.2"), 1)
    job = world.create("scrub", streams=streams)
    world.attempt(job.id, should_stop=StopsAfter(questions))
    ended = world.finish(job.id)
    assert ended.state is JobState.FAILED
    assert "2 damages are not mended: 2 ObjectMissing" in ended.reason


@pytest.mark.parametrize("seed", range(40))
def test_workers_that_die_anywhere_are_taken_over_and_no_damage_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.upkeep.scrub.PORTION_REQUESTS", 10)
    rng = random.Random(seed)
    world = world_of()
    lose(world, stream_of("orders.0"), 2)
    without_note(world, stream_of("orders.1"))
    job = world.create("scrub", streams=rng.choice([[], ["*"]]), repair=True, max_attempts=100)
    deaths = 0
    while True:
        at = rng.randrange(1, 150)

        def die(number: int, _: str, is_done: bool, at: int = at, after: bool = rng.random() < 0.5) -> None:  # noqa: FBT001
            if number >= at and is_done is after:
                raise Killed

        try:
            world.attempt(
                job.id,
                calls=Calls(world.table, world.objects, die),
                takes_over=bool(deaths),
                writes=lambda: rng.random() < 0.7,
            )
        except Killed:
            deaths += 1
            continue
        break
    ended = world.jobs.get(job.id)
    assert ended.state is JobState.FAILED
    assert "1 damages are not mended: 1 ObjectMissing" in ended.reason


def test_a_run_whose_budget_is_used_up_fails_and_goes_on_when_it_is_resumed() -> None:
    world = world_of(3, 60)
    job = world.create("scrub", max_requests=150)
    after = world.finish(job.id)
    assert after.state is JobState.FAILED
    assert "the budget of a run" in after.reason
    rounds = 0
    while after.state is JobState.FAILED:
        done = after.progress.done
        world.jobs.resume(job.id)
        after = world.finish(job.id)
        assert after.progress.done >= done
        rounds += 1
    assert after.state is JobState.SUCCEEDED
    assert rounds > 1


def test_with_a_schedule_a_budget_that_is_used_up_waits_for_the_next_time_and_goes_on() -> None:
    world = world_of(3, 60)
    lose(world, stream_of("orders.0"), 2)
    job = world.create("scrub", max_requests=150, schedule="every 6h")
    began = world.clock.now
    after = world.attempt(job.id)
    assert after is not None
    assert (after.state, after.next_at) == (JobState.WAITING, began + 6 * 3600 * 1000)
    assert after.runs == 0
    for _ in range(20):
        world.clock.now = after.next_at
        after = world.attempt(job.id)
        assert after is not None
        if after.runs:
            break
    assert (after.runs, after.failed_runs) == (1, 1)
    assert "1 ObjectMissing" in after.reason
    assert dict(after.cursor) == {}


def test_a_fragment_that_takes_more_than_a_portion_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PORTION_REQUESTS > 1
    monkeypatch.setattr("coldstream.upkeep.scrub.PORTION_REQUESTS", 1)
    world = world_of(2, 3)
    lose(world, stream_of("orders.1"), 0)
    job = world.run("scrub", deep=True)
    assert "1 damages are not mended" in job.reason


def test_a_service_that_does_not_answer_is_tried_again_from_the_last_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.upkeep.scrub.PORTION_REQUESTS", 20)
    world = world_of(3, 10)
    job = world.create("scrub")
    seen: list[int] = []

    def refuse(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "info" and not is_done:
            seen.append(1)
            if len(seen) == 20:
                raise UnavailableError("S3 does not answer")

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, refuse))
    assert after is not None
    assert after.state is JobState.WAITING
    assert after.progress.done > 0
    ended = world.finish(job.id)
    assert ended.state is JobState.SUCCEEDED, ended.reason
    assert ended.progress.done == 30


def test_many_damages_are_counted_and_the_first_named() -> None:
    world = world_of(1, 30)
    for fragment in range(25):
        lose(world, stream_of("orders.0"), fragment)
    job = world.run("scrub")
    assert "25 damages are not mended: 25 ObjectMissing" in job.reason
    assert world.log(job.id).count("damaged: ") == 20
    assert "and 5 more damages" in world.log(job.id)
