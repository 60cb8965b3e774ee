"""Jobs that compact: all streams or some, stopped and killed at every place, beside others."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.errors import UnavailableError
from coldstream.jobs.job import Job, JobState
from coldstream.lifecycle.deletion import delete_stream
from coldstream.manifest.entry import Encoding
from coldstream.units import Offset
from tests.erase.archived import MessageArchive
from tests.support.compacting import Calls, Killed
from tests.upkeep.world import StopsAfter, UpkeepWorld, hold, stream_of


def world_of(streams: int = 3, fragments: int = 4) -> UpkeepWorld:
    world = UpkeepWorld()
    for number in range(streams):
        world.stream(f"orders.{number}", *(2 + number + one for one in range(fragments)))
    return world


def encodings(archive: MessageArchive) -> list[Encoding]:
    return [entry.encoding for entry in archive.log]


def assert_whole(world: UpkeepWorld) -> None:
    """Every message of every stream is there, and no compaction is under way."""
    for archive in world.streams.values():
        assert archive.read() == archive.published
        head = world.table.head(archive.stream.incarnation)
        assert head is not None
        assert head.compacting is None


def assert_compacted(world: UpkeepWorld, job: Job) -> None:
    assert job.state is JobState.SUCCEEDED, job.reason
    assert job.progress.done == job.progress.total
    for archive in world.streams.values():
        assert encodings(archive) == [Encoding.ZSTD_SEEKABLE]
    assert_whole(world)


def test_all_streams_become_one_compressed_fragment_each() -> None:
    world = world_of()
    job = world.run("compact")
    assert_compacted(world, job)
    assert (job.progress.unit, job.progress.total) == ("fragments", 12)
    assert job.progress.messages == sum(len(archive.published) for archive in world.streams.values())
    assert "12 fragments became 3" in world.log(job.id)


def test_names_and_patterns_choose_and_others_are_left_alone() -> None:
    world = world_of()
    world.stream("orders.1", 2, 2, vhost="other", declared=2)
    job = world.run("compact", streams=["orders.0", "*.1"])
    assert job.state is JobState.SUCCEEDED
    changed = {
        archive.stream.vhost + archive.stream.name for archive in world.streams.values() if len(archive.log) == 1
    }
    assert changed == {"/orders.0", "/orders.1"}


def test_of_a_name_it_is_the_newest_incarnation_and_of_a_pattern_each() -> None:
    world = world_of(1)
    again = world.stream("orders.0", 2, 2, declared=2)
    world.run("compact", streams=["orders.0"])
    assert [len(archive.log) for archive in world.streams.values()] == [4, 1]
    assert len(again.log) == 1
    world.run("compact", streams=["orders.?"])
    assert [len(archive.log) for archive in world.streams.values()] == [1, 1]


def test_a_name_and_a_pattern_that_no_stream_has_fail_the_job_and_the_others_are_done() -> None:
    world = world_of(2)
    job = world.run("compact", streams=["orders.0", "gone", "bills*"])
    assert job.state is JobState.FAILED
    assert "2 skipped" in job.reason
    assert "no stream 'gone' in vhost '/'" in job.reason
    assert "bills*" in job.reason
    assert [len(archive.log) for archive in world.streams.values()] == [1, 4]
    assert world.run("compact", streams=["gone"], allow_skipped=True).state is JobState.SUCCEEDED


def test_what_is_younger_is_left_alone() -> None:
    world = world_of(1)
    (archive,) = world.streams.values()
    young = archive.log[1].greatest_timestamp
    job = world.run("compact", older_than=f"{(world.clock.now - young) // 1000 - 1}s")
    assert job.state is JobState.SUCCEEDED
    assert len(archive.log) < 4
    world = world_of(1)
    world.run("compact", older_than="365d")
    assert len(next(iter(world.streams.values())).log) == 4


def test_what_a_hold_protects_is_counted_and_fails_the_job() -> None:
    world = world_of(2)
    archive = world.streams[stream_of("orders.0")]
    first, second = archive.log[1], archive.log[2]
    hold_id = hold(world, archive.stream, first.first_offset, second.next_offset)
    job = world.run("compact")
    assert job.state is JobState.FAILED
    assert job.skipped.count == 2
    assert f"the legal hold {hold_id} protects them" in job.reason
    assert encodings(archive) == [Encoding.ZSTD_SEEKABLE, *[Encoding.IDENTITY] * 2, Encoding.ZSTD_SEEKABLE]
    assert len(world.streams[stream_of("orders.1")].log) == 1
    assert_whole(world)


def test_a_damaged_fragment_is_named_and_its_neighbours_go_on() -> None:
    world = world_of(3)
    archive = world.streams[stream_of("orders.1")]
    entry = archive.log[2]
    data = bytearray(world.objects.objects[entry.key])
    data[100] ^= 1
    world.objects.objects[entry.key] = bytes(data)
    job = world.run("compact")
    assert job.state is JobState.FAILED
    assert job.skipped.count == 4
    assert entry.key in job.reason
    assert "a scrub tells more" in job.reason
    assert sorted(len(one.log) for one in world.streams.values()) == [1, 1, 4]


def test_a_named_stream_that_is_deleted_meanwhile_is_told_and_others_are_no_matter() -> None:
    world = world_of(2)
    stream = stream_of("orders.0")
    job = world.create("compact", streams=["orders.0", "orders.1"])
    seen: list[int] = []

    def delete(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload" and is_done and not seen:
            seen.append(1)
            delete_stream(world.stores(), stream.incarnation, grace_ms=0, by="eve")

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, delete))
    assert seen
    assert after is not None
    assert after.state is JobState.FAILED
    assert "it was deleted meanwhile" in after.reason
    assert world.run("compact").state is JobState.SUCCEEDED


@pytest.mark.parametrize("questions", range(0, 60, 1))
def test_a_run_that_is_stopped_at_any_place_goes_on_from_there(questions: int) -> None:
    world = world_of(2, 3)
    job = world.create("compact", target_size="64KiB")
    stopped = world.attempt(job.id, should_stop=StopsAfter(questions))
    assert stopped is not None
    if stopped.state is JobState.WAITING:
        assert stopped.attempts == 0
    assert_whole(world)
    assert_compacted(world, world.finish(job.id))


def test_what_is_done_before_a_stop_is_not_done_again() -> None:
    world = world_of(4, 3)
    job = world.create("compact")
    rounds = 0
    while (after := world.attempt(job.id, should_stop=StopsAfter(3))) is not None and after.state is JobState.WAITING:
        rounds += 1
        assert rounds < 50
    written = len([key for key in world.objects.objects if key.endswith(".1.fragment")])
    assert rounds > 1
    assert written == 4
    assert_compacted(world, world.jobs.get(job.id))


@pytest.mark.parametrize("seed", range(60))
def test_workers_that_die_anywhere_are_taken_over_and_all_is_done_once(seed: int) -> None:
    rng = random.Random(seed)
    world = world_of(2, 3)
    job = world.create("compact", max_attempts=100)
    deaths = 0
    while True:
        at = rng.randrange(1, 160)

        def die(number: int, _: str, is_done: bool, at: int = at, after: bool = rng.random() < 0.5) -> None:  # noqa: FBT001
            if number >= at and is_done is after:
                raise Killed

        calls = Calls(world.table, world.objects, die)
        try:
            ended = world.attempt(job.id, calls=calls, takes_over=bool(deaths), writes=lambda: rng.random() < 0.5)
        except Killed:
            deaths += 1
            continue
        break
    # It may have died right after it wrote that the job had succeeded.
    assert_compacted(world, ended or world.jobs.get(job.id))


def test_a_service_that_does_not_answer_is_tried_again_from_the_cursor() -> None:
    world = world_of(3)
    job = world.create("compact")
    puts: list[str] = []

    def refuse(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload" and not is_done:
            puts.append(name)
            if len(puts) == 2:
                raise UnavailableError("S3 does not answer")

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, refuse))
    assert after is not None
    assert after.state is JobState.WAITING
    assert "S3 does not answer" in after.reason
    assert after.progress.failures == 1
    assert after.cursor["after"] is not None
    assert_compacted(world, world.finish(job.id))


def test_a_service_that_never_answers_fails_the_job_after_its_attempts() -> None:
    world = world_of(1)
    job = world.create("compact", max_attempts=3)

    def refuse(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload":
            raise UnavailableError("S3 does not answer")

    for _ in range(3):
        after = world.attempt(job.id, calls=Calls(world.table, world.objects, refuse))
        assert after is not None
        world.clock.now = after.next_at or world.clock.now
    assert after.state is JobState.FAILED
    assert "tried 3 times without progress" in after.reason
    world.jobs.resume(job.id)
    assert_compacted(world, world.finish(job.id))


def test_what_is_due_is_swept_unless_the_sweep_is_off() -> None:
    for may_sweep, left in ((True, 1), (False, 5)):
        world = world_of(1)
        world.may_sweep = may_sweep
        world.run("compact")
        world.clock.pass_ms(8 * 3600 * 1000)
        world.run("compact")
        fragments = [key for key in world.objects.objects if key.endswith(".fragment")]
        assert len(fragments) == left


def test_too_many_streams_to_read_every_head_are_counted_as_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.upkeep.survey.survey.__defaults__", (2,))
    world = world_of(4, 2)
    job = world.run("compact")
    assert (job.progress.unit, job.progress.done, job.progress.total) == ("streams", 4, 4)


def test_fragments_that_others_erase_meanwhile_are_compacted_as_they_are_then() -> None:
    world = world_of(1)
    (archive,) = world.streams.values()
    job = world.create("compact")
    done: list[int] = []

    def erase(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  a callback
        if name == "complete_upload" and is_done and not done:
            done.append(1)
            erased = world.run("erase", stream="orders.0", offsets="0:3", reason="x", with_other_copies=True)
            assert erased.state is JobState.SUCCEEDED, erased.reason

    after = world.attempt(job.id, calls=Calls(world.table, world.objects, erase))
    assert after is not None
    assert after.state is JobState.SUCCEEDED
    assert [entry.encoding for entry in archive.log] == [Encoding.ZSTD_SEEKABLE]
    assert archive.log[0].erased
    assert archive.log[0].first_offset == Offset(0)
    assert replace(after.progress, done=0).messages
