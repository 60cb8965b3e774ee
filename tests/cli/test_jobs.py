"""`coldstream jobs`: listed, shown, steered, edited, deleted; with their exit codes and advice."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from coldstream.cli import jobs_archive
from coldstream.cli.jobs_archive import JobArchive, job_ids
from coldstream.cli.jobs_choices import FormatName, KindChoice, RunnerName, StateChoice
from coldstream.errors import UnavailableError
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import Job, JobProgress, JobState, Skipped
from coldstream.jobs.log_lines import LogLine
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.units import TimestampMs
from tests.cli.conftest import Archive, Cli, body_of
from tests.jobs.test_specs import LEAST
from tests.support.previewing import SeveralStreams

UNKNOWN = "0000000000-aaaaaa"


class JobScene:
    """An archive in memory, and jobs of each kind in it."""

    def __init__(self) -> None:
        self.archive = SeveralStreams()
        self.jobs = JobStore(self.archive.table)

    def add(self, kind: str = "scrub", **fields: Any) -> Job:
        return self.jobs.create(parse_spec({"kind": kind, **LEAST[JobKind(kind)], **fields}), by="ann")

    def run(self, job: Job, **changed: Any) -> Job:
        """Let a worker take a job, and get on with it."""
        taken = acquire(self.jobs, self.jobs.get(job.id), "worker-1")
        assert taken is not None
        return self.jobs.update(job.id, lambda there: replace(there, **changed))

    def end(self, job: Job, state: JobState, **changed: Any) -> Job:
        """End a job as a worker does."""
        ended = {"lease": None, "wish": None, "ended_at": TimestampMs(1_800_000_000_000), "state": state}
        return self.jobs.update(job.id, lambda there: replace(there, **(ended | changed)), say=f"ended: {state}")

    def state(self, job: Job) -> JobState:
        return self.jobs.get(job.id).state


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> JobScene:
    made = JobScene()
    monkeypatch.setattr(jobs_archive, "open_jobs", lambda: JobArchive(made.archive.table, made.jobs))
    monkeypatch.setenv("COLDSTREAM_BY", "me")
    return made


def test_the_choices_are_those_of_jobs() -> None:
    assert [*KindChoice] == [kind.value for kind in JobKind]
    assert [*StateChoice] == [state.value for state in JobState]
    schema = parse_spec({"kind": "export", **LEAST[JobKind.EXPORT]}).model_json_schema()
    assert schema["properties"]["format"]["enum"] == [*FormatName.__args__]  # type: ignore[attr-defined]
    assert schema["properties"]["runner"]["enum"] == [*RunnerName.__args__]  # type: ignore[attr-defined]


def test_jobs_are_listed_as_a_table_newest_first(cli: Cli, scene: JobScene) -> None:
    first = scene.add("load", name="orders again")
    scene.run(
        first, progress=JobProgress(done=45, total=100, messages=1200, lag_ms=90_000), skipped=Skipped(3, ("x: y",))
    )
    second = scene.add("retention")
    done = cli("jobs", "list")
    assert done.code == 0
    heads, *rows = done.out.splitlines()
    assert re.split(" {2,}", heads) == [
        *("job", "kind", "name", "state", "done", "messages", "lag", "skipped", "created at")
    ]
    told = {row.split()[0]: re.split(" {2,}", row) for row in rows}
    assert told[first.id][1:8] == ["load", "orders again", "running", "45% of 100 offsets", "1200", "90 s", "3"]
    assert told[second.id][1:8] == ["retention", "-", "created", "-", "0", "-", "0"]


def test_jobs_are_listed_by_state_and_kind_and_as_json(cli: Cli, scene: JobScene) -> None:
    scrub, retention = scene.add("scrub"), scene.add("retention")
    scene.jobs.pause(scrub.id)
    ids = lambda *options: [job["id"] for job in cli("jobs", "list", "-o", "json", *options).json]  # noqa: E731
    assert set(ids()) == {scrub.id, retention.id}
    assert ids("--state", "paused") == [scrub.id]
    assert ids("--kind", "retention", "--kind", "load") == [retention.id]
    assert len(ids("--limit", "1")) == 1
    assert ids("--state", "failed") == []


def test_no_jobs_are_told_with_how_to_make_one(cli: Cli, scene: JobScene) -> None:
    done = cli("jobs", "list")
    assert done.code == 0
    assert "`coldstream jobs create` makes one" in done.err


def test_a_job_is_shown_with_all_that_is_known_of_it(cli: Cli, scene: JobScene) -> None:
    job = scene.add("load", rate=50)
    scene.run(job, progress=JobProgress(done=45, total=100), skipped=Skipped(7, ("orders 5 to 11: a gap",), 2))
    scene.jobs.pause(job.id)
    text = cli("jobs", "show", job.id).out
    for line in (
        f"job               {job.id}",
        "state             running, pause asked",
        "done              45% of 100 offsets",
        "skipped           7 offsets",
        "                  orders 5 to 11: a gap",
        "                  and 2 more",
        "worker            worker-1",
        "  streams         orders",
        "  target          type stream, broker default, name orders-again",
        "  rate            50.0",
    ):
        assert line in text.splitlines()
    (shown,) = cli("jobs", "show", job.id, "--output", "json").json
    assert (shown["id"], shown["spec"]["rate"], shown["wish"]) == (job.id, 50.0, "pause")


def test_what_an_erasure_selects_is_not_shown(cli: Cli, scene: JobScene) -> None:
    job = scene.add("erase", key="customer-4711")
    for options in ((), ("-o", "json")):
        out = cli("jobs", "show", job.id, *options).out
        assert "customer-4711" not in out
        assert "hidden" in out


def test_a_job_is_paused_resumed_and_cancelled(cli: Cli, scene: JobScene) -> None:
    job = scene.add()
    assert cli("jobs", "pause", job.id).out == f"job {job.id}: paused\n"
    assert cli("jobs", "resume", job.id).out == f"job {job.id}: waiting\n"
    assert cli("jobs", "cancel", job.id, "--yes").out == f"job {job.id}: cancelled\n"
    assert [line.text for line in scene.jobs.log(job.id)][1:] == ["pause, by me", "resume, by me", "cancel, by me"]


def test_several_jobs_are_steered_at_once(cli: Cli, scene: JobScene) -> None:
    jobs = [scene.add() for _ in range(3)]
    found = cli("jobs", "pause", *(job.id for job in jobs), "-o", "json").json
    assert [one["state"] for one in found] == ["paused"] * 3


def test_nothing_is_cancelled_or_deleted_without_a_yes(cli: Cli, scene: JobScene) -> None:
    job = scene.add()
    for verb in ("cancel", "delete"):
        done = cli("jobs", verb, job.id)
        assert done.code == 2
        assert "say --yes" in done.err
    assert scene.state(job) is JobState.CREATED


def test_a_no_changes_nothing(cli: Cli, scene: JobScene, monkeypatch: pytest.MonkeyPatch) -> None:
    job = scene.add()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    done = cli("jobs", "cancel", job.id)
    assert (done.code, done.err) == (1, "nothing was changed\n")
    assert scene.state(job) is JobState.CREATED


def test_only_what_has_ended_is_deleted(cli: Cli, scene: JobScene) -> None:
    job = scene.add()
    done = cli("jobs", "delete", job.id, "--yes")
    assert done.code == 7
    assert "cancel it first" in done.err
    scene.jobs.cancel(job.id)
    assert cli("jobs", "delete", job.id, "-y").out == f"deleted job {job.id}\n"
    done = cli("jobs", "show", job.id)
    assert done.code == 3
    assert "`coldstream jobs list` shows the jobs" in done.err


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "logs"])
def test_an_unknown_job_is_told_with_where_to_look(cli: Cli, scene: JobScene, verb: str) -> None:
    done = cli("jobs", verb, UNKNOWN)
    assert done.code == 3
    assert "`coldstream jobs list`" in done.err


def test_what_a_state_does_not_allow_is_refused_with_what_can_be_done(cli: Cli, scene: JobScene) -> None:
    job = scene.add()
    done = cli("jobs", "resume", job.id)
    assert done.code == 7
    assert "only paused and failed jobs can" in done.err


def test_fields_are_edited_by_their_names(cli: Cli, scene: JobScene) -> None:
    job = scene.add("load")
    done = cli("jobs", "edit", job.id, "rate=500", "end=12000", "allow_skipped=true", "name=again, and again")
    assert (done.code, done.out) == (
        0,
        f"changed job {job.id}: rate=500, end=12000, allow_skipped=true, name=again, and again\n",
    )
    spec = scene.jobs.get(job.id).spec
    assert (spec.rate, spec.end, spec.allow_skipped, spec.name) == (500.0, "12000", True, "again, and again")  # type: ignore[union-attr]
    cli("jobs", "edit", job.id, "rate=null", "end=null")
    spec = scene.jobs.get(job.id).spec
    assert (spec.rate, spec.end) == (None, None)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (("rate",), "'rate' is not that"),
        (("=5",), "'=5' is not that"),
        (("rate=1", "rate=2"), "rate: is given twice"),
        (("rate=fast",), "rate: "),
        (("streams=orders",), "streams: of a load job cannot be edited; these can: "),
        (("end=last",), "end: 'last' is neither an offset nor a time"),
    ],
)
def test_an_edit_that_cannot_be_says_why(cli: Cli, scene: JobScene, fields: tuple[str, ...], said: str) -> None:
    job = scene.add("load")
    done = cli("jobs", "edit", job.id, *fields)
    assert done.code == 2
    assert said in done.err
    assert scene.jobs.get(job.id).revision == 1


def test_a_log_is_shown_with_times_and_as_json(cli: Cli, scene: JobScene) -> None:
    job = scene.add()
    scene.jobs.update(job.id, lambda there: there, say="a \x1b[2Jline")
    text = cli("jobs", "logs", job.id).out
    assert re.fullmatch(r"\S+Z  created by ann\n\S+Z  a \\x1b\[2Jline\n", text)
    found = cli("jobs", "logs", job.id, "-o", "json", "--after", "0").json
    assert [(line["job"], line["number"], line["text"]) for line in found] == [(job.id, 1, "a \x1b[2Jline")]


def test_a_log_is_followed_until_the_job_has_ended(cli: Cli, scene: JobScene, monkeypatch: pytest.MonkeyPatch) -> None:
    job = scene.add()
    events = iter(
        [lambda: scene.jobs.update(job.id, lambda there: there, say="half"), lambda: scene.end(job, JobState.SUCCEEDED)]
    )
    monkeypatch.setattr("coldstream.cli.jobs_watch.sleep", lambda _: next(events)())
    told = [line["text"] for line in cli("jobs", "logs", job.id, "--follow", "-o", "json").json]
    assert told == ["created by ann", "half", "ended: succeeded"]


def test_a_shell_completes_ids_with_what_the_jobs_are(scene: JobScene) -> None:
    job = scene.add("load", name="again")
    other = scene.add()
    found = dict(job_ids(""))
    assert found == {job.id: "load created again", other.id: "scrub created"}
    assert dict(job_ids(job.id)) == {job.id: "load created again"}


def test_a_table_that_does_not_answer_holds_up_no_shell(scene: JobScene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UnavailableError("no answer")

    monkeypatch.setattr(scene.jobs, "page", fail)
    assert job_ids("") == []


def test_without_a_table_there_are_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDSTREAM_TABLE", raising=False)
    assert job_ids("") == []


def test_a_line_of_the_log_is_one_line(cli: Cli, scene: JobScene) -> None:
    job = scene.add()
    scene.jobs.update(job.id, lambda there: there, say="two\nlines")
    assert len(cli("jobs", "logs", job.id).out.splitlines()) == 2
    assert json.loads(json.dumps(LogLine(0, TimestampMs(0), "x").text)) == "x"


def test_commands_and_http_api_of_a_local_stack_see_the_same_jobs(archive: Archive, cli: Cli) -> None:
    words = ("jobs", "create", "load", "--stream", "ord*", "--to-stream", "again")
    (told,) = cli(*words, "--dry-run", "-o", "json").json
    assert (told["matched_streams"], told["streams"][0]["name"]) == (1, "orders")
    (job,) = cli(*words, "-o", "json").json
    url = archive.stack.resolver_url
    with urllib.request.urlopen(f"{url}/v1/jobs/{job['id']}", timeout=30) as response:
        assert json.load(response) == job
    pause = urllib.request.Request(f"{url}/v1/jobs/{job['id']}/pause", method="POST")
    with urllib.request.urlopen(pause, timeout=30) as response:
        assert json.load(response)["state"] == "paused"
    assert "state             paused" in cli("jobs", "show", job["id"]).out.splitlines()
    with urllib.request.urlopen(f"{url}/v1/stream/messages?vhost=/&name=orders&at=7&limit=1", timeout=30) as response:
        (message,) = json.load(response)["messages"]
    assert (message["offset"], message["body"]["text"]) == (7, body_of(7))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/v1/jobs/{UNKNOWN}", timeout=30)
