"""Model and code cannot drift: each step that the explorer has the shipped code make is one that the model allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explore import further
from tests.explore.patches import reproducible
from tests.explore.worlds import WHOLE
from tests.model.binding import ACTIONS, compare
from tests.model.tlc import MODELS, REMEDY, find_tlc
from tests.model.transitions import Transitions
from tests.support.fixtures import do_without

STATES = 1500
"""Of the explorer's, in each world."""

REST = (("lacking+purge", "0c0l0r"), ("bad+purge", "0c0l0r"), ("hold+release", "0c0l0r"))
"""The rest of what the model can do: the end of a purge, of a loss and of a copy in quarantine, and a release."""


@pytest.fixture(autouse=True)
def code() -> Iterator[pytest.MonkeyPatch]:
    if find_tlc() is None:
        do_without("TLC", REMEDY)
    with reproducible() as patch:
        yield patch


def test_the_model_allows_each_step_of_the_shipped_code(tmp_path: Path) -> None:
    further.load()
    found = Transitions()
    for names, faults in WHOLE:
        if "n" not in faults:  # The model begins with a segment that is archived.
            found.explore(names, faults, max_states=STATES)
    for names, faults in REST:
        found.explore(names, faults, max_states=2 * STATES)
    agreed = compare(tmp_path, found)
    assert agreed.forbidden == ()
    assert agreed.taken == {*ACTIONS}
    assert len(found.steps) > 150


def test_code_that_commits_to_a_deleted_stream_makes_a_step_that_the_model_forbids(
    code: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code.setattr("coldstream.manifest.commit.check_floors", lambda *_: None)
    found = Transitions()
    found.explore("upload+delete", "0c0l0r")
    (step, *_) = compare(tmp_path, found).forbidden
    assert "upload: apply" in step
    assert "entries from" in step


def test_a_model_that_asks_for_more_than_the_code_forbids_its_steps(tmp_path: Path) -> None:
    text = (MODELS / "Coldstream.tla").read_text()
    stricter = text.replace('On("generation", o.g >= gen)', 'On("generation", o.g > gen)')
    assert stricter != text
    found = Transitions()
    found.explore("upload+delete", "0c0l0r", max_states=STATES)
    assert compare(tmp_path, found).forbidden == ()
    (step, *_) = compare(tmp_path, found, model=stricter).forbidden
    assert "upload: apply" in step
