"""The recovery log of an agent: what goes in, what is deleted, and what a crash between two requests leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.recovery_log import RecoveryLog
from coldstream.agent.state_directory import StateDirectory
from coldstream.archive.borders import QuietSpans
from coldstream.errors import ObjectExistsError, UnavailableError
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.recovery import LogRecovery, RecoveryReport
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.recovery_log import read_run, read_span_header
from coldstream.units import TimestampMs, now_ms
from tests.support.removing import delete
from tests.support.rig import Rig

pytestmark = pytest.mark.usefixtures("quick")

SPAN_MS = 1000
HOUR_MS = 3_600_000
NODE = "node-1"


@pytest.fixture
def quiet_rig(rig: Rig) -> Rig:
    rig.every_ms = SPAN_MS
    rig.quiet = QuietSpans(20_000, HOUR_MS)
    # In the middle of an hour, so that no test sees one end.
    rig.stream.now = TimestampMs(now_ms() // HOUR_MS * HOUR_MS + HOUR_MS)
    return rig


def new_log(rig: Rig, archiver: StreamArchiver, *, now: int | None = None, node: str = NODE) -> RecoveryLog:
    assert rig.quiet is not None
    return RecoveryLog(
        rig.client(),
        {Incarnation(rig.stream.incarnation): archiver},
        rig.metrics,
        lambda: node,
        every_ms=SPAN_MS,
        quiet=rig.quiet,
        now=lambda: now_ms() if now is None else TimestampMs(now),
    )


def keys(rig: Rig) -> list[str]:
    return list(rig.archive.objects.keys("archive/spans/"))


def logged(rig: Rig) -> list[tuple[int, int]]:
    entries = [one for key in keys(rig) for one in read_span_header(rig.archive.objects, key).entries]
    return [(one.first_offset, one.next_offset) for one in entries]


async def begins(rig: Rig, archiver: StreamArchiver) -> None:
    await rig.until(lambda: archiver.progress.has_begun)


def recover(rig: Rig, *, dry_run: bool = False) -> RecoveryReport:
    """Recover with functions that run as soon as an event is put."""
    archive = rig.archive

    class DirectBus:
        def put(self, *, source: str, detail_type: str, detail: str) -> None:
            rig.bus.put(source=source, detail_type=detail_type, detail=detail)
            rig.bus.handle()

    announcer = Announcer(archive.table, archive.objects, DirectBus(), archive.keys, dry_run=dry_run)
    return LogRecovery(announcer, timeout_s=1).run()


async def test_each_turn_logs_what_is_new_once_and_nothing_if_nothing_is(quiet_rig):
    quiet_rig.stream.publish(20)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        log = new_log(quiet_rig, archiver)
        await log.turn()
        await log.turn()
        assert logged(quiet_rig) == [(0, 20)]
        quiet_rig.stream.publish(10)
        await log.turn()
        assert logged(quiet_rig) == [(0, 20), (20, 30)]
        assert log.complete_at is not None
        assert len(log) == 2
    assert quiet_rig.archived == []
    key = keys(quiet_rig)[0]
    run = read_run(quiet_rig.archive.objects, key, read_span_header(quiet_rig.archive.objects, key).entries[0])
    assert run.data in quiet_rig.stream.segments[0].read_bytes()


async def test_what_is_not_committed_is_not_logged(quiet_rig):
    quiet_rig.stream.publish(10)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        quiet_rig.stream.committed_to = 10
        quiet_rig.stream.publish(10)
        log = new_log(quiet_rig, archiver)
        await log.turn()
        assert logged(quiet_rig) == []
        quiet_rig.stream.committed_to = None
        await log.turn()
        assert logged(quiet_rig) == [(0, 20)]


async def test_what_is_enough_for_a_slice_is_left_to_it(quiet_rig):
    quiet_rig.stream.publish(100, size=400)  # more than the minimum, in one span
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        log = new_log(quiet_rig, archiver)
        await log.turn()
        assert logged(quiet_rig) == []
        quiet_rig.stream.publish(10, size=20, step_ms=2 * SPAN_MS)
        await log.turn()
        assert [first for first, _ in logged(quiet_rig)][:1] in ([100], [])
        await quiet_rig.until(lambda: quiet_rig.archived_to >= int(quiet_rig.stream.segments[-1].stem))


async def test_an_object_goes_only_when_the_manifest_covers_all_that_it_holds(quiet_rig):
    quiet_rig.stream.publish(20)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        log = new_log(quiet_rig, archiver)
        await log.turn()
        late = int(quiet_rig.stream.now) + 2 * HOUR_MS
        later = new_log(quiet_rig, archiver, now=late)
        await later.turn()
        assert len(keys(quiet_rig)) == 1
        # The next message is of another hour, and so the slice before it has ended.
        quiet_rig.stream.publish(10, step_ms=HOUR_MS)
        await quiet_rig.until(lambda: quiet_rig.archived_to == 20)
        await quiet_rig.until(lambda: archiver.progress.archived_to == 20)
        latest = new_log(quiet_rig, archiver, now=late)
        await latest.turn()
        assert logged(quiet_rig) == [(20, 30)]


async def test_a_slice_in_quarantine_keeps_its_object(quiet_rig, monkeypatch):
    quiet_rig.stream.publish(20)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        await new_log(quiet_rig, archiver).turn()
        archiver.progress.record(20)  # as after a quarantine: passed, and not in the manifest
        log = new_log(quiet_rig, archiver)
        await log.turn()
        assert len(keys(quiet_rig)) == len(log) == 1


async def test_a_new_life_finds_what_the_last_one_left(quiet_rig):
    quiet_rig.stream.publish(20)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        await new_log(quiet_rig, archiver).turn()
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        log = new_log(quiet_rig, archiver)
        await log.turn()
        # It cannot know what its last life has logged: what is not archived is logged once more.
        assert logged(quiet_rig) == [(0, 20), (0, 20)]
        assert len(log) == 2


class FailingObjects(MemoryObjects):
    """Fails the request of a number; with `is_done` it has happened all the same."""

    def __init__(self, at: int, *, is_done: bool) -> None:
        super().__init__()
        self.at, self.is_done = at, is_done
        self.calls = 0

    def _next(self) -> bool:
        self.calls += 1
        return self.calls == self.at

    def put_new(self, key, body, *, size_bytes, crc32, note=None):  # type: ignore[no-untyped-def]
        fails = "/spans/" in key and self._next()
        if not fails or self.is_done:
            super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)
        if fails:
            raise ObjectExistsError(key) if self.is_done else UnavailableError("no answer")

    def delete_many(self, keys, *, signed_at=None):  # type: ignore[no-untyped-def]
        fails = self._next()
        if not fails or self.is_done:
            answer = super().delete_many(keys, signed_at=signed_at)
        if fails:
            raise UnavailableError("no answer")
        return answer


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_request_that_fails_or_whose_answer_is_lost_loses_no_message_and_leaves_no_object(
    quiet_rig, at, is_done
):
    objects = FailingObjects(at, is_done=is_done)
    quiet_rig.archive.use(objects=objects)
    quiet_rig.stream.publish(20)
    now = int(quiet_rig.stream.now)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        log = new_log(quiet_rig, archiver)

        async def turn() -> None:
            with quiet_failure():
                await log.turn()

        await turn()
        quiet_rig.stream.publish(10)
        for _ in range(3):
            await turn()
        covered = {offset for first, end in logged(quiet_rig) for offset in range(first, end)}
        assert covered == set(range(30))
        quiet_rig.stream.publish(10, step_ms=HOUR_MS)
        await quiet_rig.until(lambda: archiver.progress.archived_to == 30)
        log._now = lambda: TimestampMs(now + 3 * HOUR_MS)
        for hours in range(3, 9):
            log._now = lambda hours=hours: TimestampMs(now + hours * HOUR_MS)
            await turn()
        assert {end for _, end in logged(quiet_rig)} == {40}


@contextmanager
def quiet_failure() -> Iterator[None]:
    try:
        yield
    except (ObjectExistsError, UnavailableError):
        return


async def test_nothing_is_logged_of_a_stream_that_is_deleted_from_the_archive(quiet_rig):
    quiet_rig.stream.publish(20)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        quiet_rig.stream.publish(10, step_ms=HOUR_MS)
        await quiet_rig.until(lambda: archiver.progress.archived_to == 20)
        delete(quiet_rig.archive.table, Incarnation(quiet_rig.stream.incarnation))
        await new_log(quiet_rig, archiver).turn()
        assert logged(quiet_rig) == []


async def test_after_the_node_is_lost_everything_logged_is_recovered_and_the_log_is_empty(quiet_rig):
    quiet_rig.stream.publish(20)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        log, other = new_log(quiet_rig, archiver), None
        await log.turn()
        quiet_rig.stream.publish(10)
        await log.turn()
    # Another node had the same chunks, put together otherwise.
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        other = new_log(quiet_rig, archiver, node="node-2")
        await other.turn()
    assert logged(quiet_rig) == [(0, 20), (20, 30), (0, 30)]
    assert recover(quiet_rig, dry_run=True).streams[0].recovered == [(0, 30)]
    assert quiet_rig.archived == []
    assert len(keys(quiet_rig)) == 3
    report = recover(quiet_rig)
    assert report.nodes == (NODE, "node-2")
    assert report.streams[0].recovered == [(0, 30)]
    assert quiet_rig.archived_to == 30
    assert (report.deleted, report.kept, keys(quiet_rig)) == (3, [], [])
    assert recover(quiet_rig).objects == 0


async def test_a_recovery_beside_an_agent_at_work_does_no_harm(quiet_rig):
    quiet_rig.stream.publish(20)
    async with quiet_rig.running() as archiver:
        await begins(quiet_rig, archiver)
        log = new_log(quiet_rig, archiver)
        await log.turn()
        await asyncio.to_thread(recover, quiet_rig)
        assert quiet_rig.archived == [(0, 20)]
        quiet_rig.stream.publish(10)
        await log.turn()
        quiet_rig.stream.publish(10, step_ms=HOUR_MS)
        await quiet_rig.until(lambda: archiver.progress.archived_to == 30)
        assert quiet_rig.archived_to == 30


def test_a_state_directory_keeps_its_name_and_another_has_another(tmp_path):
    one, other = StateDirectory(tmp_path / "one"), StateDirectory(tmp_path / "other")
    for each in (one, other):
        each.path.mkdir()
    assert one.node("größe.example") == one.node("renamed") != other.node("größe.example")
    (one.path / "node").write_text("../../escape")
    assert one.node("host").startswith("host-")
