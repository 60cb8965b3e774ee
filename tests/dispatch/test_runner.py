"""Who runs a job: by what it asks, by its size, and by what there is."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.dispatch.runner import (
    FRAGMENT_WORK,
    LEAST_FOR_EMR,
    MOST_FOR_LAMBDA,
    AvailableRunners,
    Runner,
    check_runner,
    choose_runner,
    runner_of,
    size_of,
)
from coldstream.errors import RunnerError
from coldstream.jobs.specs import JobSpec, parse_spec
from tests.upkeep.world import UpkeepWorld

ALL = AvailableRunners(has_queue=True, has_emr=True)
NONE = AvailableRunners()
TABLE = {"type": "table", "path": "s3://lake/orders"}
MESSAGES = {"kind": "load", "streams": ["orders"], "target": TABLE}


def spec_of(kind: str, **fields: Any) -> JobSpec:
    return parse_spec({"kind": kind, **fields})


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, Runner.LAMBDA),
        (MOST_FOR_LAMBDA, Runner.LAMBDA),
        (MOST_FOR_LAMBDA + 1, Runner.WORKER),
        (LEAST_FOR_EMR - 1, Runner.WORKER),
        (LEAST_FOR_EMR, Runner.EMR),
        (None, Runner.WORKER),
    ],
)
def test_by_itself_it_goes_by_size(size_bytes: int | None, expected: Runner) -> None:
    assert choose_runner(spec_of("compact"), size_bytes, ALL) is expected


def test_what_is_not_configured_is_not_chosen() -> None:
    for size_bytes in (0, LEAST_FOR_EMR):
        assert choose_runner(spec_of("compact"), size_bytes, NONE) is Runner.WORKER
    assert choose_runner(spec_of("compact"), 0, AvailableRunners(has_emr=True)) is Runner.WORKER


def test_what_a_runner_cannot_do_is_not_chosen() -> None:
    small, large = 0, LEAST_FOR_EMR
    load = spec_of("load", streams=["orders"], target={"type": "stream", "name": "again"})
    assert choose_runner(load, small, ALL) is Runner.WORKER
    assert choose_runner(load, large, ALL) is Runner.WORKER
    assert choose_runner(spec_of("store", streams=["*"]), large, ALL) is Runner.WORKER
    assert choose_runner(spec_of("scrub", max_requests=100), large, ALL) is Runner.WORKER
    assert choose_runner(parse_spec(MESSAGES), large, ALL) is Runner.EMR


@pytest.mark.parametrize("runner", ["worker", "lambda", "emr"])
def test_what_a_job_says_counts_whatever_its_size(runner: str) -> None:
    for size_bytes in (0, LEAST_FOR_EMR, None):
        assert choose_runner(spec_of("compact", runner=runner), size_bytes, ALL) == runner


@pytest.mark.parametrize(
    ("given", "available", "problem"),
    [
        ({"kind": "store", "streams": ["*"], "runner": "lambda"}, ALL, "a Lambda runs .* and no store: .* say worker"),
        ({"kind": "export", "streams": ["a"], "destination": "/x", "runner": "lambda"}, None, "and no export"),
        ({"kind": "compact", "runner": "lambda"}, NONE, "no queue for jobs is configured: deploy with Jobs=on"),
        ({"kind": "compact", "runner": "emr"}, AvailableRunners(has_queue=True), "WithSpark=true and Jobs=on"),
        ({"kind": "store", "streams": ["*"], "runner": "emr"}, None, "EMR reads the archive, and no broker"),
        ({"kind": "scrub", "max_read": "1GiB", "runner": "emr"}, None, "no budget"),
        ({**MESSAGES, "target": {"type": "exchange", "name": "x"}, "runner": "emr"}, None, "loads into tables alone"),
        ({**MESSAGES, "target": {**TABLE, "path": "/tmp/x"}, "runner": "emr"}, None, "no directory that stays"),
        ({**MESSAGES, "follow": True, "runner": "emr"}, None, "neither follows"),
        ({**MESSAGES, "after_load": "delete", "runner": "emr"}, None, "neither follows"),
        ({**MESSAGES, "start": "-1h", "runner": "emr"}, None, "cuts a window of time at chunks"),
        ({**MESSAGES, "end": "2026-01-31", "runner": "emr"}, None, "cuts a window of time at chunks"),
        (
            {"kind": "export", "streams": ["a"], "destination": "s3://b/x", "format": "segments", "runner": "emr"},
            None,
            "no segments",
        ),
        ({"kind": "export", "streams": ["a"], "destination": "/x", "runner": "emr"}, None, "no directory that stays"),
        (
            {"kind": "export", "streams": ["a"], "destination": "s3://b/x", "schedule": "every 1h", "runner": "emr"},
            None,
            "would add to the first",
        ),
    ],
)
def test_the_impossible_is_refused_with_what_to_do(
    given: dict[str, Any], available: AvailableRunners | None, problem: str
) -> None:
    with pytest.raises(RunnerError, match=problem) as raised:
        check_runner(parse_spec(given), available)
    assert "say worker" in str(raised.value)


def test_what_may_be_known_later_passes_without_a_configuration() -> None:
    check_runner(spec_of("compact", runner="emr"))
    check_runner(spec_of("compact", runner="lambda"))
    check_runner(parse_spec({**MESSAGES, "start": "-1h", "window_by": "chunk", "runner": "emr"}))
    check_runner(parse_spec({**MESSAGES, "start": "5", "end": "1000", "runner": "emr"}))


def world_of() -> UpkeepWorld:
    world = UpkeepWorld()
    world.stream("a", 2, 3)
    world.stream("b", 4)
    return world


def test_a_size_is_of_the_bytes_or_of_the_fragments_that_are_to_be_read() -> None:
    world = world_of()
    a, b = world.streams.values()
    bytes_of = {one.stream.name: sum(entry.data_bytes for entry in one.log) for one in (a, b)}
    assert size_of(world.table, spec_of("compact")) == sum(bytes_of.values())
    assert size_of(world.table, spec_of("compact", streams=["a"])) == bytes_of["a"]
    assert size_of(world.table, spec_of("scrub", deep=True)) == sum(bytes_of.values())
    assert size_of(world.table, spec_of("scrub")) == 3 * FRAGMENT_WORK
    assert size_of(world.table, spec_of("retention")) == 3 * FRAGMENT_WORK
    assert size_of(world.table, spec_of("erase", stream="b", offsets="0:1", reason="x")) == bytes_of["b"]
    assert size_of(world.table, spec_of("erase", stream="gone", offsets="0:1", reason="x")) == 0
    assert size_of(world.table, spec_of("store", streams=["*"])) is None
    assert size_of(world.table, parse_spec({**MESSAGES, "streams": ["?"]})) == sum(bytes_of.values())


def test_of_more_streams_than_heads_are_read_the_size_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.upkeep.survey.survey.__defaults__", (1,))
    world = world_of()
    assert size_of(world.table, spec_of("compact")) is None
    monkeypatch.setattr("coldstream.dispatch.runner.LEAST_FOR_EMR", 1)
    assert size_of(world.table, spec_of("compact")) is not None


def test_nothing_is_looked_up_where_there_is_no_choice() -> None:
    world = world_of()
    world.table.requests.clear()
    assert runner_of(world.table, spec_of("compact"), NONE) is Runner.WORKER
    assert runner_of(world.table, spec_of("compact", runner="emr"), ALL) is Runner.EMR
    assert not world.table.requests
    assert runner_of(world.table, spec_of("compact"), ALL) is Runner.LAMBDA
