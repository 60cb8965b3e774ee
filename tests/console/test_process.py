"""`coldstream console` as a process, over the emulated AWS."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from urllib.parse import urlsplit

import httpx
import pytest

from coldstream.store.objects import S3Objects
from tests.support.serve_process import NotReadyError, ServeProcess

PATIENCE_S = 60


@pytest.fixture
def environment(table_name: str, s3_objects: S3Objects) -> Mapping[str, str]:
    return {"COLDSTREAM_TABLE": table_name, "COLDSTREAM_BUCKET": s3_objects.bucket}


def started(environment: Mapping[str, str], log: Path, *options: str | Path) -> ServeProcess:
    return ServeProcess(environment, log, *options, command="console")


@pytest.mark.parametrize("ending", [SIGTERM, SIGINT])
def test_it_shows_an_empty_archive_and_ends_with_a_signal(
    environment: Mapping[str, str], tmp_path: Path, ending: Signals
) -> None:
    with started(
        environment, tmp_path / "log", "--broker", "default=rabbitmq-stream://u:secret@127.0.0.1:1"
    ) as console:
        page = httpx.get(f"{console.url}/", follow_redirects=True, timeout=PATIENCE_S)
        assert (page.status_code, page.url.path) == (200, "/streams")
        assert "Nothing is archived yet" in page.text
        health = httpx.get(f"{console.url}/health", timeout=PATIENCE_S)
        assert health.status_code == 200
        assert "bucket" in health.text
        made = httpx.post(
            f"{console.url}/jobs/new",
            data={"kind": "scrub", "step": "create"},
            headers={"Origin": console.url},
            timeout=PATIENCE_S,
        )
        assert made.status_code == 303
        job = httpx.get(f"{console.url}{made.headers['Location']}", timeout=PATIENCE_S)
        assert "created" in job.text
        console.signal(ending)
        assert console.wait() == 0
        assert "secret" not in console.log.read_text()


def test_tokens_are_asked_for_and_open_it_to_others(environment: Mapping[str, str], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{sha256(b'secret').hexdigest()} ops rw *\n")
    with started(environment, tmp_path / "log", "--host", "0.0.0.0", "--token-file", tokens) as console:
        url = f"http://127.0.0.1:{urlsplit(console.url).port}"
        with httpx.Client(base_url=url, headers={"Origin": url}, timeout=PATIENCE_S) as client:
            assert client.get("/streams").headers["Location"] == "/login?to=%2Fstreams"
            assert client.post("/login", data={"token": "wrong"}).status_code == 401
            assert client.post("/login", data={"token": "secret", "to": "/jobs"}).headers["Location"] == "/jobs"
            assert client.get("/streams").status_code == 200


def test_read_only_changes_nothing(environment: Mapping[str, str], tmp_path: Path) -> None:
    with started(environment, tmp_path / "log", "--read-only") as console:
        sent = {"kind": "scrub", "step": "create"}
        answer = httpx.post(f"{console.url}/jobs/new", data=sent, headers={"Origin": console.url}, timeout=PATIENCE_S)
        assert answer.status_code == 403
        assert "New job" not in httpx.get(f"{console.url}/jobs", timeout=PATIENCE_S).text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "can be reached from other machines"),
        (["--certificate", "x"], "given together"),
        (["--session", "0s"], "must be more than 0"),
        (["--broker", "nothing"], "is not NAME=URI"),
        (["--broker", "a=http://user:secret@x"], "does not begin with"),
        (["--agent", "nothing"], "is not a URL"),
    ],
    ids=str,
)
def test_what_cannot_work_is_told_in_a_line(
    environment: Mapping[str, str], tmp_path: Path, options: list[str], told: str
) -> None:
    with pytest.raises(NotReadyError, match=told):
        started(environment, tmp_path / "log", *options).start()
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "secret" not in log


def test_a_port_in_use_is_told_in_a_line(environment: Mapping[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(NotReadyError, match="Address already in use"):
            started(environment, tmp_path / "log", "--port", port).start()


def test_the_help_says_where_to_look() -> None:
    command = [sys.executable, "-m", "coldstream.cli.main", "console", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "http://127.0.0.1:4480" in " ".join(done.stdout.split())
