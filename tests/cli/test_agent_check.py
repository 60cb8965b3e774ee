"""`coldstream agent --check` tells what is not well, and ends with a code that says where."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from coldstream.agent.monitor import check_suite as checks_module
from coldstream.agent.monitor.check import Check, CheckedPart, CheckOutcome
from coldstream.cli.main import app

OK = Check(CheckedPart.BROKER, "the broker takes the login", CheckOutcome.OK, "user 'coldstream', with TLS")
REFUSED = Check(CheckedPart.AWS, "s3:PutObject", CheckOutcome.FAILED, "AccessDenied", "grant it")
NO_LINK = Check(CheckedPart.DISK, "segments can be linked", CheckOutcome.FAILED, "cannot \x1b link", "same mount")
UNSEEN = Check(CheckedPart.MANAGEMENT, "the API lists", CheckOutcome.UNKNOWN, "none is given", "give --management")


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "stream").mkdir()

    def check(found: list[Check], *options: str):
        async def found_so(*_: object) -> list[Check]:
            return found

        monkeypatch.setattr(checks_module, "check_agent", found_so)
        command = ["agent", "--data", str(tmp_path / "stream"), "--state", str(tmp_path / "state"), "--check", *options]
        return CliRunner().invoke(app, command)

    return check


@pytest.mark.parametrize(
    ("found", "code"),
    [([OK], 0), ([OK, UNSEEN], 0), ([OK, REFUSED], 6), ([REFUSED, NO_LINK], 2)],
)
def test_the_exit_code_says_where_something_is_not_well(run, found, code):
    assert run(found).exit_code == code


def test_a_line_each_and_what_to_do_about_what_is_not_well(run):
    done = run([OK, REFUSED, NO_LINK, UNSEEN])
    assert done.stdout == (
        "outcome  part        check                       found\n"
        "ok       broker      the broker takes the login  user 'coldstream', with TLS\n"
        "failed   aws         s3:PutObject                AccessDenied\n"
        "failed   disk        segments can be linked      cannot \\x1b link\n"
        "unknown  management  the API lists               none is given\n"
    )
    assert done.stderr == (
        "failed: s3:PutObject: grant it\n"
        "failed: segments can be linked: same mount\n"
        "unknown: the API lists: give --management\n"
        "1 ok, 2 failed, 1 unknown\n"
    )


def test_programs_get_an_object_a_line(run):
    lines = run([OK, REFUSED], "--output", "json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "part": check.part.value,
            "check": check.what,
            "outcome": check.outcome.value,
            "found": check.finding,
            "todo": check.advice,
        }
        for check in (OK, REFUSED)
    ]
