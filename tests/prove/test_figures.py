from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.prove.__main__ import ROOT, run, shared_out
from tests.prove.figures import BEGIN, END, PAGE, Outcome, table, written
from tests.prove.parts import PARTS, OwnPart, ProofPart, Task


class Scripted(ProofPart):
    """A part that runs a program of one line."""

    program = ""

    def command(self, task: Task) -> list[str]:
        return [sys.executable, "-c", self.program, str(task.figures)]


class Writes(Scripted):
    program = 'import sys; open(sys.argv[1], \'w\').write(\'{"states": 1234567, "longest": "a3b2"}\')'


class Fails(Scripted):
    program = "raise SystemExit(1)"


def test_a_part_gives_its_figures(tmp_path: Path):
    outcome = run(Writes("explorer", "", 1), Task(0.1, 1, tmp_path / "figures"))
    assert not outcome.failed
    assert outcome.figures == {"states": 1234567, "longest": "a3b2"}


def test_a_part_that_fails_is_told_without_figures_of_a_run_before(tmp_path: Path):
    (tmp_path / "figures").write_text('{"states": 1}')
    outcome = run(Fails("explorer", "", 1), Task(0.1, 1, tmp_path / "figures"))
    assert outcome.failed
    assert outcome.figures == {}


def test_a_part_prints_into_a_log_beside_its_figures(tmp_path: Path):
    class Prints(Scripted):
        program = "print('state 17'); raise SystemExit(1)"

    run(Prints("explorer", "", 1), Task(0.1, 1, tmp_path / "explorer.json"))
    assert (tmp_path / "explorer.log").read_text() == "state 17\n"


@pytest.mark.parametrize(("at_once", "expected"), [(1, [2, 6]), (2, [4, 8]), (9, [8, 8])])
def test_parts_that_run_at_once_share_all_cores_and_none_takes_longer_than_it_may(at_once, expected):
    parts = [ProofPart("small", "", 1), ProofPart("large", "", 3)]
    assert shared_out(parts, 8, at_once) == dict(zip(["small", "large"], expected, strict=True))


def test_a_long_list_is_told_by_its_length_and_its_beginning():
    text = table([Outcome("faults", {"wrong": [], "left": [1, 2], "more": list("abcd")}, False, 1)], "")
    assert "wrong 0, left 2 (1, 2), more 4 (a, b, c, …) |" in text


def test_the_figures_take_the_place_of_those_before():
    outcomes = [Outcome("explorer", {"states": 1234567, "longest": "a3b2"}, False, 61), Outcome("faults", {}, True, 5)]
    page = f"before\n{BEGIN}old\n{END}after\n"
    text = written(page, table(outcomes, "on something:"))
    assert "| explorer | states 1,234,567, longest: a3b2 | 0:01:01 | nothing found |" in text
    assert "| faults |  | 0:00:05 | **failed** |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="no place for figures"):
        written("no markers\n", "text")


def test_the_page_has_a_place_for_the_figures_and_names_each_part():
    page = PAGE.read_text()
    assert written(page, "text")
    assert [part.name for part in PARTS if f"`{part.name}`" not in page] == []


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_can_be_asked_for_by_time(part: ProofPart):
    task = Task(0.5, 3, Path("figures.json"))
    command = part.command(task)
    assert part.planned(task) or "--figures" in command
    assert not part.environment(task) or part.environment(task)["COLDSTREAM_FIRST_SEED"] == "3"


@pytest.mark.parametrize("part", [part for part in PARTS if isinstance(part, OwnPart)], ids=lambda part: part.name)
def test_each_part_has_an_option_of_just_the_name_that_its_seed_is_given_by(part: OwnPart):
    # argparse takes the beginning of another option's name for it: --seed was --seeds, a number of them.
    source = (ROOT / f"{part.module.replace('.', '/')}.py").read_text()
    options = [one for one in ("--hours", "--figures", part.seed_option) if one is not None]
    assert [one for one in options if f'add_argument("{one}"' not in source] == []
