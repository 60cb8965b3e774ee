"""`coldstream worker` in a process of its own, on an emulated AWS."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldstream.jobs.job import JobState
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from tests.support.server import ROOT

WITHIN_S = 60.0


class World:
    def __init__(self, table: DynamoTable, name: str, bucket: str, log: Path) -> None:
        self.jobs = JobStore(table)
        self.log = log
        self.environment = {
            **os.environ,
            "COLDSTREAM_TABLE": name,
            "COLDSTREAM_BUCKET": bucket,
            "PYTHONPATH": str(ROOT / "layers/coldstream/python"),
        }

    @contextmanager
    def process(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "coldstream", "worker", "--poll", "100ms", *options]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True
            )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def follow(self) -> str:
        """Create a job that goes on until it is stopped: it waits for a stream that never comes."""
        spec = {"kind": "load", "streams": ["none*"], "follow": True, "poll_interval": "1s"}
        target = {"type": "table", "path": str(self.log.parent / "table"), "format": "jsonl"}
        return self.jobs.create(parse_spec({**spec, "target": target})).id


@pytest.fixture
def world(dynamo_table: DynamoTable, table_name: str, s3_objects: S3Objects, tmp_path: Path) -> World:
    return World(dynamo_table, table_name, s3_objects.bucket, tmp_path / "log")


def test_once_runs_what_is_due_and_ends(world: World) -> None:
    job = world.jobs.create(parse_spec({"kind": "scrub"}))
    with world.process("--once") as process:
        assert process.wait(WITHIN_S) == 0
    assert world.jobs.get(job.id).state is JobState.SUCCEEDED, world.jobs.get(job.id).reason
    lines = [json.loads(line) for line in world.log.read_text().splitlines()]
    assert {"time", "level", "message"} <= lines[0].keys()
    assert [line["job"] for line in lines if line.get("state") == "succeeded"] == [job.id]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_jobs_wait_for_another(world: World, number: signal.Signals) -> None:
    job = world.follow()
    with world.process() as process:
        world.until(lambda: world.jobs.get(job).epoch > 0)
        process.send_signal(number)
        assert process.wait(WITHIN_S) == 0
    found = world.jobs.get(job)
    assert (found.state, found.lease) == (JobState.WAITING, None)


def test_metrics_are_served_on_the_loopback(world: World) -> None:
    job = world.follow()
    with world.process("--metrics", "0") as process:
        assert process.stdout is not None
        url = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stdout.readline())
        assert url is not None
        world.until(lambda: world.jobs.get(job).epoch > 0)
        world.until(lambda: 'coldstream_worker_ended_total{kind="load",state="waiting"}' in _read(url[0]))
        assert 'coldstream_jobs{kind="load"' in _read(url[0])


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    "options",
    [
        ("--broker", "default=kafka://x"),
        ("--kinds", "copy"),
        ("--lease", "1ms"),
        ("--metrics", "nowhere"),
        ("--poll", "soon"),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(world: World, options: tuple[str, str]) -> None:
    with world.process(*options) as process:
        assert process.wait(WITHIN_S) == 2
    assert options[0] in world.log.read_text()


def test_a_table_that_is_not_there_is_waited_for(world: World) -> None:
    world.environment["COLDSTREAM_TABLE"] = "not-yet"
    with world.process() as process:
        world.until(lambda: "could not look for jobs" in world.log.read_text())
        assert process.poll() is None
        process.terminate()
        assert process.wait(WITHIN_S) == 0
