"""`coldstream jobs create`: by options, by JSON, by questions; previewed, confirmed, and created once."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coldstream.jobs.job import Job, JobState
from coldstream.jobs.specs import JobKind, spec_to_dict
from tests.cli.conftest import Cli
from tests.cli.test_jobs import JobScene, scene
from tests.jobs.test_specs import LEAST

__all__ = ["scene"]


def created(scene: JobScene) -> Job:
    (job,) = scene.jobs.page().jobs
    return job


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (
            (
                "load",
                "--stream",
                "orders*",
                "--stream",
                "bills",
                "--from",
                "-1h",
                "--to",
                "5000",
                "--to-stream",
                "again",
            ),
            {
                "streams": ["orders*", "bills"],
                "start": "now-1h",
                "end": "5000",
                "target": {"type": "stream", "broker": "default", "vhost": None, "name": "again"},
            },
        ),
        (
            ("load", "--stream", "a", "--to-super-stream", "b", "--broker", "eu", "--rate", "50", "--follow"),
            {
                "rate": 50.0,
                "follow": True,
                "target": {
                    "type": "super_stream",
                    "broker": "eu",
                    "vhost": None,
                    "name": "b",
                    "routing_key": None,
                },
            },
        ),
        (("store", "--stream", "*", "--broker", "eu", "--from", "now"), {"broker": "eu", "start": "now"}),
        (("export", "--stream", "a", "--destination", "/tmp/a", "--format", "parquet"), {"format": "parquet"}),
        (("scrub", "--schedule", "every 6h", "--name", "nightly", "--vhost", "v"), {"streams": [], "vhost": "v"}),
        (("compact", "--stream", "a", "--runner", "emr"), {"runner": "emr", "streams": ["a"]}),
    ],
)
def test_options_are_the_fields_of_a_job(
    cli: Cli, scene: JobScene, arguments: tuple[str, ...], fields: dict[str, Any]
) -> None:
    done = cli("jobs", "create", *arguments)
    job = created(scene)
    assert (done.code, done.out) == (0, f"created job {job.id}\n")
    assert job.by == "me"
    assert spec_to_dict(job.spec).items() >= fields.items()


def test_an_erasure_has_one_stream_and_offsets(cli: Cli, scene: JobScene) -> None:
    words = ("jobs", "create", "erase", "--from", "5", "--to", "9", "--reason", "ticket 1", "--yes")
    assert cli(*words, "--stream", "a").code == 0
    fields = spec_to_dict(created(scene).spec)
    assert (fields["stream"], fields["offsets"], fields["reason"]) == ("a", "5:9", "ticket 1")
    done = cli(*words, "--stream", "a", "--stream", "b")
    assert done.code == 2
    assert "--stream: an erasure is in one stream, and 2 are given" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("load", "--stream", "a"), "target: Field required"),
        (("load", "--to-stream", "a"), "--stream: Field required"),
        (("load", "--stream", "a", "--to-stream", "b", "--to-table", "c"), "--to-stream, --to-table are 2"),
        (("load", "--stream", "a", "--to-stream", "b", "--from", "soon"), "--from: 'soon' is not first"),
        (("load", "--stream", "a", "--to-stream", "b", "--rate", "0"), "--rate: "),
        (("scrub", "--rate", "5"), "--rate: is no field"),
        (("scrub", "--format", "jsonl"), "format: is no field"),
        (("retention", "--schedule", "often"), "--schedule: 'often' is neither"),
        (("erase", "--stream", "a", "--reason", "x"), "say offsets, key, filter_value or properties"),
        ((), "say one of store, load, compact, scrub, erase, export, retention, or --from-json"),
        (("--stream", "a"), "say one of store"),
    ],
)
def test_what_makes_no_job_is_told_by_the_options_name(
    cli: Cli, scene: JobScene, arguments: tuple[str, ...], said: str
) -> None:
    done = cli("jobs", "create", *arguments)
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert scene.jobs.page().jobs == ()


@pytest.mark.parametrize("kind", JobKind)
def test_each_kind_is_created_from_a_file(cli: Cli, scene: JobScene, tmp_path: Path, kind: JobKind) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"kind": kind.value, **LEAST[kind]}))
    done = cli("jobs", "create", "--from-json", path, "--yes", "-o", "json")
    assert done.code == 0
    assert done.json[0]["id"] == created(scene).id
    assert created(scene).kind is kind


def test_a_job_is_created_from_standard_input(cli: Cli, scene: JobScene, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b'{"kind": "scrub", "deep": true}')
    assert cli("jobs", "create", "--from-json", "-").code == 0
    assert spec_to_dict(created(scene).spec)["deep"] is True


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Give a command data on its standard input, which is no terminal."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False))


def test_what_a_job_shows_as_its_spec_creates_it_again(
    cli: Cli, scene: JobScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scene.add("load", rate=5.5, follow=True)
    (shown,) = cli("jobs", "show", job.id, "-o", "json").json
    give(monkeypatch, json.dumps(shown["spec"]).encode())
    (again,) = cli("jobs", "create", "--from-json", "-", "-o", "json").json
    assert scene.jobs.get(again["id"]).spec == job.spec


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"\xff", "is not JSON"),
        (b"[" * 99_999, "is not JSON"),
        (b'{"kind": "copy"}', "--from-json: -: kind: is one of store"),
        (b'{"kind": "scrub", "rate": 5}', "--from-json: -: rate: is no field"),
        (b'{"kind": "erase", "stream": "a", "reason": "x"}', "--from-json: -: offsets: say offsets"),
        (b" " * ((1 << 20) + 1), "more than 1048576 bytes"),
    ],
)
def test_json_that_makes_no_job_is_told_as_the_files(
    cli: Cli, scene: JobScene, monkeypatch: pytest.MonkeyPatch, data: bytes, said: str
) -> None:
    give(monkeypatch, data)
    done = cli("jobs", "create", "--from-json", "-")
    assert done.code == 2
    assert said in done.err
    assert scene.jobs.page().jobs == ()


@pytest.mark.usefixtures("scene")
def test_a_file_that_is_not_there_is_told(cli: Cli, tmp_path: Path) -> None:
    done = cli("jobs", "create", "--from-json", tmp_path / "no.json")
    assert done.code == 2
    assert "No such file or directory" in done.err


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("more", [("scrub",), ("--stream", "a"), ("--follow",), ("--to-stream", "b")])
def test_json_has_all_fields(cli: Cli, more: tuple[str, ...]) -> None:
    done = cli("jobs", "create", *more, "--from-json", "-")
    assert done.code == 2
    assert "has all fields: give no others" in done.err


def test_a_dry_run_shows_what_the_job_would_do_and_creates_nothing(cli: Cli, scene: JobScene) -> None:
    scene.archive.add("orders", 12, without=(3,))
    words = ("jobs", "create", "load", "--stream", "orders", "--to-stream", "again", "--rate", "10", "--dry-run")
    done = cli(*words)
    assert done.code == 0
    assert "messages          about 110" in done.out
    assert "takes             11 s or more, at its rate" in done.out
    assert "note: orders: 1 gaps of 10 offsets together" in done.out
    assert "in US dollars" in done.out
    (told,) = cli(*words, "-o", "json").json
    assert (told["messages"], told["matched_streams"]) == (110, 1)
    assert scene.jobs.page().jobs == ()


def test_what_removes_something_is_not_created_without_a_yes(cli: Cli, scene: JobScene) -> None:
    for words in (
        ("retention",),
        ("erase", "--stream", "a", "--from", "1", "--to", "2", "--reason", "x"),
    ):
        done = cli("jobs", "create", *words)
        assert done.code == 2
        assert "say --yes" in done.err
    assert scene.jobs.page().jobs == ()
    assert cli("jobs", "create", "retention", "--yes").code == 0


def test_the_same_key_creates_one_job(cli: Cli, scene: JobScene) -> None:
    words = ("jobs", "create", "scrub", "--idempotency-key", "night")
    assert cli(*words).out == f"created job {created(scene).id}\n"
    assert cli(*words).out == f"job {created(scene).id} was created with this key before\n"
    done = cli("jobs", "create", "compact", "--idempotency-key", "night")
    assert done.code == 7
    assert "give another key" in done.err


def test_a_job_is_waited_for(cli: Cli, scene: JobScene, monkeypatch: pytest.MonkeyPatch) -> None:
    events = iter(
        [lambda: scene.run(created(scene)), lambda: scene.end(created(scene), JobState.FAILED, reason="no broker")]
    )
    monkeypatch.setattr("coldstream.cli.jobs_watch.sleep", lambda _: next(events)())
    done = cli("jobs", "create", "scrub", "--wait")
    assert done.code == 1
    assert done.out.splitlines() == [
        f"created job {created(scene).id}",
        f"job {created(scene).id} failed: no broker",
    ]


class Answers:
    """What somebody types, and what they were asked."""

    def __init__(self, answers: Iterator[str]) -> None:
        self.answers = answers
        self.questions: list[str] = []

    def prompt(self, question: str, *, default: str | None, value_proc: Any, **_: object) -> Any:
        self.questions.append(question)
        while True:
            answer = next(self.answers)
            try:
                return value_proc(default if answer == "" and default is not None else answer)
            except Exception as err:  # noqa: BLE001  as click does: it asks again
                self.questions.append(f"{err}")

    def confirm(self, question: str, **_: object) -> bool:
        self.questions.append(question)
        return next(self.answers) == "y"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def type_(*answers: str) -> Answers:
        made = Answers(iter(answers))
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr("typer.prompt", made.prompt)
        monkeypatch.setattr("typer.confirm", made.confirm)
        return made

    return type_


def test_on_a_terminal_it_asks_shows_what_the_job_would_do_and_asks_again(
    cli: Cli, scene: JobScene, typed: Any
) -> None:
    scene.archive.add("orders", 12)
    asked = typed("copy", "load", "again", "", "ord*", "stream", "orders-again", "", "20", "", "50", "n", "y")
    done = cli("jobs", "create")
    assert done.code == 0
    job = created(scene)
    assert done.out.endswith(f"created job {job.id}\n")
    assert "messages          about 100" in done.out
    assert "'copy' is none of store, load" in asked.questions[1]
    assert asked.questions[-1] == "Create this job?"
    fields = spec_to_dict(job.spec)
    assert (fields["name"], fields["streams"], fields["start"], fields["end"]) == ("again", ["ord*"], "20", None)
    assert (fields["rate"], fields["follow"], fields["target"]["name"]) == (50.0, False, "orders-again")


def test_a_no_at_the_end_creates_nothing(cli: Cli, scene: JobScene, typed: Any) -> None:
    typed("scrub", "", "", "", "", "n")
    done = cli("jobs", "create")
    assert (done.code, scene.jobs.page().jobs) == (1, ())


@pytest.mark.parametrize(
    ("answers", "fields"),
    [
        (("store", "", "", "*", "eu", "now", "y"), {"broker": "eu", "start": "now"}),
        (("compact", "", "", "", "every 6h", "y"), {"streams": [], "schedule": "every 6h"}),
        (("erase", "", "", "orders", "5:9", "ticket", "y"), {"stream": "orders", "offsets": "5:9"}),
        (("export", "", "v", "a b", "jsonl", "/tmp/x", "", "", "y"), {"vhost": "v", "streams": ["a", "b"]}),
        (
            ("load", "", "", "a", "table", "/tmp/t", "", "900", "x", "0", "y", "y"),
            {"rate": None, "follow": True, "end": "900"},
        ),
    ],
)
def test_each_kind_is_asked_for_what_it_needs(
    cli: Cli, scene: JobScene, typed: Any, answers: tuple[str, ...], fields: dict[str, Any]
) -> None:
    typed(*answers)
    assert cli("jobs", "create").code == 0
    assert spec_to_dict(created(scene).spec).items() >= fields.items()


def test_ctrl_c_at_a_question_ends_the_command(cli: Cli, scene: JobScene, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer  # noqa: PLC0415

    def abort(*_: object, **__: object) -> None:
        raise typer.Abort

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", abort)
    assert cli("jobs", "create").code == 130
    assert scene.jobs.page().jobs == ()
