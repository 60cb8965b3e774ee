"""A job's item stays small enough to be written, whatever its spec, its kind and its errors say."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.jobs import changes
from coldstream.jobs.attempt import acquire, run_attempt
from coldstream.jobs.job import MAX_CURSOR_BYTES, Job, JobState, Skipped
from coldstream.jobs.run import Finished, JobRun, RunEnd
from coldstream.jobs.sealing import sealed
from coldstream.jobs.short_text import short_text
from coldstream.jobs.specs import MAX_SPEC_BYTES, JobKind, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.state_item import MAX_STATE_BYTES
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.jobs.test_specs import LEAST

SPEC = parse_spec({"kind": "load", **LEAST[JobKind.LOAD]})
RABBIT = "\U0001f407"
NOW = TimestampMs(1_800_000_000_000)


@pytest.fixture
def store() -> JobStore:
    return JobStore(MemoryTable())


def taken(store: JobStore) -> Job:
    found = acquire(store, store.create(SPEC), "worker-1")
    assert found is not None
    return found


def load_of(names: int) -> dict[str, Any]:
    return {"kind": "load", **LEAST[JobKind.LOAD], "streams": [RABBIT * 255] * names}


def test_a_spec_that_would_leave_no_room_for_progress_is_refused(store: JobStore) -> None:
    with pytest.raises(InvalidInputError, match=f"of {MAX_SPEC_BYTES} at most"):
        store.create(parse_spec(load_of(40)))
    assert store.page().jobs == ()


def test_the_largest_job_there_may_be_is_written(store: JobStore) -> None:
    spec = parse_spec(load_of(31))
    job = acquire(store, store.create(spec, by=RABBIT * 100_000), "worker-1")
    assert job is not None

    def kind(run: JobRun) -> RunEnd:
        run.advance(cursor={"at": "x" * (MAX_CURSOR_BYTES - 20)})
        for number in range(100):
            run.skip(f"{number} {RABBIT * 1000}", 1, RABBIT * 1000)
        raise UnavailableError(RABBIT * 100_000)

    after = run_attempt(store, job, kind)
    assert after is not None
    assert (after.state, after.skipped.count) == (JobState.WAITING, 100)
    failed = store.update(job.id, lambda one: changes.failed(one, RABBIT * 100_000, NOW))
    assert len(failed.to_item().data) <= MAX_STATE_BYTES


def test_a_cursor_that_is_too_large_fails_the_job_with_that_reason(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.advance(cursor={"at": "x" * MAX_CURSOR_BYTES})
        return Finished()

    after = run_attempt(store, taken(store), kind)
    assert after is not None
    assert after.state is JobState.FAILED
    assert after.reason.startswith("cursor: has 100009 bytes")


@pytest.mark.parametrize("cursor", [{"at": {1, 2}}, {"at": float("nan")}], ids=["set", "nan"])
def test_a_cursor_that_is_no_json_fails_the_job(store: JobStore, cursor: dict[str, object]) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.advance(cursor=cursor)
        return Finished()

    after = run_attempt(store, taken(store), kind)
    assert after is not None
    assert after.state is JobState.FAILED


def test_a_cursor_is_what_it_was_when_it_was_told(store: JobStore) -> None:
    run = JobRun(store, taken(store))
    places = {"orders": [1]}
    run.advance(cursor={"places": places})
    places["orders"].append(2)
    run.checkpoint()
    assert store.get(run.job.id).cursor == {"places": {"orders": [1]}}


def test_an_error_that_nobody_expected_does_not_end_the_lease(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    job, beats = taken(store), threading.Event()
    checkpoint, failures = JobRun.checkpoint, [RuntimeError("a defect")]

    def failing(run: JobRun) -> None:
        if failures:
            raise failures.pop()
        checkpoint(run)
        beats.set()

    def kind(_: JobRun) -> RunEnd:
        assert beats.wait(20)
        return Finished()

    monkeypatch.setattr(JobRun, "checkpoint", failing)
    after = run_attempt(store, job, kind, keep_every_s=0.01)
    assert after is not None
    assert after.state is JobState.SUCCEEDED


def test_the_last_line_of_a_log_is_never_left_out(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        for number in range(200):
            run.say(f"line {number}")
        return Finished("the end")

    after = run_attempt(store, taken(store), kind, keep_every_s=60)
    assert after is not None
    texts = [line.text for line in store.log(after.id)]
    assert any("the end" in text for text in texts)
    assert texts[-1] == "150 lines were left out here"


def test_what_no_utf8_has_is_kept_out_of_reasons_and_logs(store: JobStore) -> None:
    def kind(run: JobRun) -> RunEnd:
        run.skip("stream \ud800", 1, "gap")
        raise InvalidInputError("name", "is \ud800")

    after = run_attempt(store, taken(store), kind)
    assert after is not None
    found = store.get(after.id)
    shown = [found.reason, *found.skipped.named, *(line.text for line in store.log(after.id))]
    assert "name: is ?" in "\n".join(shown)
    assert "\n".join(shown).encode()


def test_the_selection_of_an_erasure_that_is_too_large_is_refused_before_it_is_stored() -> None:
    properties = [f"application_properties.{'x' * 970}{number}=v" for number in range(20)]
    with pytest.raises(InvalidInputError, match="selection"):
        sealed(parse_spec({"kind": "erase", **LEAST[JobKind.ERASE], "properties": properties}))


def test_json_that_is_nested_without_end_is_refused() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInputError, match="job"):
        parse_spec({"kind": "retention", "name": deep})


@pytest.mark.parametrize("text", ["", "ab", "ä\n" + RABBIT, "\0" * 30, '"' * 30])
def test_a_text_is_cut_by_what_its_json_takes(text: str) -> None:
    for most in range(40):
        short = short_text(text, most)
        assert text.startswith(short)
        assert len(json.dumps(short)) - 2 <= most
        assert short == text or len(json.dumps(text[: len(short) + 1])) - 2 > most


def test_what_is_named_of_what_was_skipped_is_bounded() -> None:
    assert len(json.dumps(Skipped().plus(RABBIT * 10_000, 1, RABBIT).named)) < 2100
