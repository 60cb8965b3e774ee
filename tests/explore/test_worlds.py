"""The shipped code explored: a million states of small worlds, each held against the invariants.

`make prove` goes on for as long as it is told. A failure's text plays it again: python -m tests.explore 'TEXT'.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explore import prove
from tests.explore.patches import reproducible
from tests.explore.playing import play
from tests.explore.searching import Bounds, search
from tests.explore.worlds import DIRECT, JOBS, NEAREST, PAST, WHOLE, all_worlds

STATES = 5000
"""Of each world that is not searched to its end."""

FOUND = (
    "upload+delete/0c0l0r:a3b2a9",
    "delete+undelete+rival/0c0l0r:a3c6b5",
    "closing/1c0l0r:a13!a10",
    "compact+purge/0c0l0rp:a13b2a5b7a3b9a3b5a3b2a3b9ab4",
)
"""Schedules that once ended badly, or found a mistake of the explorer."""


@pytest.fixture(autouse=True)
def _reproducible() -> Iterator[None]:
    with reproducible():
        yield


@pytest.mark.parametrize(("names", "faults"), WHOLE)
def test_a_small_world_is_right_in_all_of_its_states(names: str, faults: str) -> None:
    found = search(names, faults)
    assert found.is_whole
    assert found.ends


@pytest.mark.parametrize(("names", "faults"), NEAREST)
def test_a_larger_world_is_right_as_far_as_few_switches_and_faults_lead(names: str, faults: str) -> None:
    assert search(names, faults, Bounds(STATES), is_near=True).states >= STATES


@pytest.mark.parametrize(("names", "faults"), [*DIRECT, *PAST])
def test_appenders_of_a_direct_stream_keep_their_promises_in_all_states(names: str, faults: str) -> None:
    found = search(names, faults)
    assert found.is_whole
    assert found.ends


@pytest.mark.parametrize(("names", "faults"), JOBS)
def test_workers_and_people_keep_the_promises_of_a_job_in_all_states(names: str, faults: str) -> None:
    found = search(names, faults)
    assert found.is_whole
    assert found.ends


@pytest.mark.parametrize("text", FOUND)
def test_schedules_that_once_ended_badly_end_well(text: str) -> None:
    assert play(text) == 0


def test_the_long_run_tells_what_it_did_and_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [("bad+lose", "0c0l0r"), ("slice+delete", "0c0l0r")]
    monkeypatch.setattr(prove, "ordered", lambda _: some)
    given = ["--hours", "0.01", "--figures", str(tmp_path / "figures")]
    assert prove.main(given) == 0
    figures = json.loads((tmp_path / "figures").read_text())
    assert figures["worlds searched to their ends"] == len(some)
    assert figures["schedules that break an invariant"] == []
    monkeypatch.setattr("coldstream.manifest.commit.check_floors", lambda *_: None)
    assert prove.main(given) == 1
    (broken,) = json.loads((tmp_path / "figures").read_text())["schedules that break an invariant"]
    assert "python -m tests.explore 'slice+delete/0c0l0r:" in broken
    assert "slice+delete/0c0l0r: BROKEN: invariant" in capsys.readouterr().out


def test_the_long_run_has_all_pairs_and_threes_and_the_seed_orders_them() -> None:
    assert sorted(prove.ordered(1)) == sorted(prove.ordered(2))
    assert prove.ordered(1) != prove.ordered(2)
    assert len(set(all_worlds())) == len(all_worlds())
