"""Jobs that are watched and waited for: redrawn, told as JSON, with an exit code by how they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coldstream.jobs.job import JobState
from tests.cli.conftest import Cli
from tests.cli.test_jobs import JobScene, scene

__all__ = ["scene"]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do one thing in each pause of a command; after the last, Ctrl-C."""

    def do(*events: Callable[[], Any]) -> None:
        left = list(events)

        def pause(_: float) -> None:
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        monkeypatch.setattr("coldstream.cli.jobs_watch.sleep", pause)

    return do


@pytest.mark.usefixtures("scene")
def test_without_a_terminal_there_is_nothing_to_draw_on(cli: Cli) -> None:
    done = cli("jobs", "list", "--watch")
    assert done.code == 2
    assert "--output json" in done.err


def test_a_list_is_redrawn_until_ctrl_c(
    cli: Cli, scene: JobScene, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scene.add()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    meanwhile(lambda: scene.jobs.pause(job.id))
    done = cli("jobs", "list", "--watch")
    assert done.code == 130
    frames = done.out.split("\x1b[H\x1b[J")[1:]
    assert [("created" in frame, "paused" in frame) for frame in frames] == [(True, False), (True, True)]


def test_a_screen_is_never_overfull(
    cli: Cli, scene: JobScene, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        scene.add()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "80")
    meanwhile()
    (frame,) = cli("jobs", "list", "--watch").out.split("\x1b[H\x1b[J")[1:]
    assert len(frame.splitlines()) == 8


def test_json_has_a_line_for_each_change(cli: Cli, scene: JobScene, meanwhile: Callable[..., None]) -> None:
    job, other = scene.add(), scene.add()
    meanwhile(lambda: scene.jobs.pause(job.id), lambda: None, lambda: scene.jobs.delete(scene.jobs.cancel(other.id).id))
    done = cli("jobs", "list", "--watch", "-o", "json")
    assert done.code == 130
    assert [(one["id"], one["state"]) for one in done.json[2:]] == [(job.id, "paused")]
    assert {one["id"] for one in done.json[:2]} == {job.id, other.id}


def test_a_job_is_watched_until_it_has_ended(cli: Cli, scene: JobScene, meanwhile: Callable[..., None]) -> None:
    job = scene.add()
    meanwhile(lambda: scene.run(job), lambda: scene.end(job, JobState.SUCCEEDED))
    done = cli("jobs", "show", job.id, "--watch", "-o", "json")
    assert done.code == 0
    assert [one["state"] for one in done.json] == ["created", "running", "succeeded"]


@pytest.mark.parametrize(("state", "code"), [(JobState.SUCCEEDED, 0), (JobState.FAILED, 1), (JobState.CANCELLED, 7)])
def test_who_waits_for_a_job_ends_as_the_job_does(
    cli: Cli, scene: JobScene, meanwhile: Callable[..., None], state: JobState, code: int
) -> None:
    job = scene.add()
    scene.jobs.pause(job.id)
    meanwhile(lambda: scene.run(job), lambda: scene.end(job, state, reason="3 skipped: a gap"))
    done = cli("jobs", "resume", job.id, "--wait")
    assert (done.code, done.out) == (code, f"job {job.id} {state}: 3 skipped: a gap\n")
    assert "created by ann" in done.err
    assert (f"`coldstream jobs resume {job.id}` tries again" in done.err) == (state is JobState.FAILED)


@pytest.mark.parametrize(("failed_runs", "code"), [(0, 0), (1, 1)])
def test_of_a_schedule_one_run_is_waited_for(
    cli: Cli, scene: JobScene, meanwhile: Callable[..., None], failed_runs: int, code: int
) -> None:
    job = scene.add("retention", schedule="every 6h")
    scene.jobs.pause(job.id)
    meanwhile(lambda: scene.end(job, JobState.WAITING, runs=1, failed_runs=failed_runs, ended_at=None))
    done = cli("jobs", "resume", job.id, "--wait", "-o", "json")
    assert done.code == code
    assert [(one["state"], one["runs"]) for one in done.json] == [("waiting", 1)]


def test_ctrl_c_leaves_the_job_as_it_is(cli: Cli, scene: JobScene, meanwhile: Callable[..., None]) -> None:
    job = scene.add()
    scene.jobs.pause(job.id)
    meanwhile()
    done = cli("jobs", "resume", job.id, "--wait")
    assert done.code == 130
    assert "Ctrl-C leaves the job as it is" in done.err
    assert scene.state(job) is JobState.WAITING


def test_only_one_job_is_waited_for(cli: Cli, scene: JobScene) -> None:
    jobs = [scene.add(), scene.add()]
    done = cli("jobs", "resume", *(job.id for job in jobs), "--wait")
    assert done.code == 2
    assert "waits for one job, and these are 2" in done.err
