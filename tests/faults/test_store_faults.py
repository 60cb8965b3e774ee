"""Twelve ways in which a store misbehaves, at the requests of commands and functions: no wrong byte, no lost offset.

`make prove` plays COLDSTREAM_FAULT_RUNS of them; a failure names its run, and `python -m tests.faults.again SEED` plays
it once more.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.fault_kinds import FaultKind
from tests.faults.fault_scenarios import SCENARIOS, Outcome
from tests.faults.faulty_world import BUCKET, Worlds
from tests.faults.judge import FaultJudge, Faults, FaultyRunError, _judge

RUNS = int(os.environ.get("COLDSTREAM_FAULT_RUNS", "60"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))


@pytest.fixture(scope="module")
def judge() -> Iterator[FaultJudge]:
    worlds = Worlds()
    yield FaultJudge(worlds)
    worlds.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_run_shows_a_wrong_byte_or_loses_an_offset_and_errors_name_the_place(judge):
    struck = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        _, faults = judge.of_seed(seed)
        struck[faults.kind] += judge.play_seed(seed)
    assert struck.total() == RUNS


def test_seeds_come_to_every_scenario_and_every_kind():
    seen = {(seed % len(SCENARIOS), seed // len(SCENARIOS) % len(FaultKind)) for seed in range(10_000)}
    assert len(seen) == len(SCENARIOS) * len(FaultKind)


class _Anything(int):
    """A checksum that is whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def test_wrong_bytes_that_nobody_checks_are_found(judge, monkeypatch):
    read = SCENARIOS["read"]

    def play() -> None:
        for number in range(judge.expected(read).requests):
            judge.play(read, Faults(FaultKind.WRONG_BYTES, number, lasts=True))

    play()
    monkeypatch.setattr("coldstream.format.chunk.crc32", lambda data: _Anything())
    with pytest.raises(FaultyRunError):
        play()


@pytest.mark.parametrize(("name", "number"), [("read", 4), ("compact", 15)])
def test_a_request_that_is_sent_elsewhere_may_be_made_again_later(judge, name, number):
    assert judge.play(SCENARIOS[name], Faults(FaultKind.REDIRECT, number, lasts=True))


def test_an_error_that_does_not_name_the_place_is_found(judge):
    scenario = SCENARIOS["read"]
    expected = judge.expected(scenario)
    _judge(scenario, Outcome(b"", f"GET of {BUCKET}: no answer"), expected, "here")
    for outcome in (
        Outcome(b"", "something went wrong"),
        Outcome(b"", f"KeyError: {BUCKET}", is_typed=False),
        Outcome(b"another byte"),
        Outcome(b"another byte", f"GET of {BUCKET}: no answer"),
    ):
        with pytest.raises(FaultyRunError):
            _judge(scenario, outcome, expected, "here")
