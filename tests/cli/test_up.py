from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import coldstream
from tests.cli.conftest import ROOT, Cli, write_segments

PACKAGE = str(Path(coldstream.__path__[0]).parent)
ENVIRONMENT = {"PYTHONPATH": PACKAGE, "PATH": os.environ["PATH"]}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "coldstream.cli.main", *map(str, arguments)]


@contextmanager
def up(env_file: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `coldstream up` until its settings are there."""
    line = command("up", "--port", "0", "--env-file", env_file, "--template", ROOT / "template.yaml", *arguments)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as running:
        try:
            deadline = time.monotonic() + 60
            while not env_file.exists():
                assert running.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield running
        finally:
            running.kill()


def test_the_settings_it_prints_work_until_ctrl_c(tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    directory = tmp_path / "__orders_1763700000000000000"
    write_segments(directory, chunks=60)
    with up(env_file) as running:
        exports = env_file.read_text()
        settings = dict(line.removeprefix("export ").split("=", 1) for line in exports.splitlines())
        announce = command("announce", directory, "--wait")
        subprocess.run(announce, env={**ENVIRONMENT, **settings}, check=True, capture_output=True)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0
    assert out == exports
    running_functions = "UploadFunction, ResolverFunction, ApiFunction, JobRunnerFunction, JobTickFunction"
    assert f"running: {running_functions}. Ctrl-C ends everything." in err
    assert "UploadFunction  / orders, offsets 0 to " in err
    assert err.endswith("ended\n")
    assert not env_file.exists()


def test_a_terminal_that_is_closed_ends_it_in_order_too(tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    with up(env_file) as running:
        running.send_signal(signal.SIGHUP)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 0
    assert err.endswith("ended\n")
    assert not env_file.exists()


def test_parameters_are_the_templates_and_sigterm_ends_it_in_order_too(tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    with up(env_file, "--parameter", "Prefix=a/b/") as running:
        assert "export COLDSTREAM_PREFIX=a/b/\n" in env_file.read_text()
        running.terminate()
        _, err = running.communicate(timeout=60)
    assert running.returncode == 0
    assert err.endswith("ended\n")
    assert not env_file.exists()


def test_a_parameter_without_a_value_is_refused(cli: Cli) -> None:
    assert cli("up", "--parameter", "Prefix").code == 2


def test_a_port_that_cannot_be_is_refused(cli: Cli) -> None:
    done = cli("up", "--port", "99999")
    assert done.code == 2
    assert "--port" in done.err


def test_a_template_that_is_not_there_is_reported(cli: Cli, tmp_path: Path) -> None:
    done = cli("up", "--template", tmp_path / "none.yaml")
    assert done.code == 2
    assert "none.yaml; name the template with --template" in done.err


def test_a_port_that_is_taken_is_reported(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    env_file = tmp_path / "env"
    env_file.write_text("somebody else's")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = cli("up", "--port", port, "--template", ROOT / "template.yaml", "--env-file", env_file)
    assert done.code == 2
    assert f"port: {port} cannot be used: Address already in use; is another `coldstream up` running?" in done.err
    assert "--port 0 takes any free one" in done.err
    assert env_file.read_text() == "somebody else's", "what it did not write it does not delete"


def test_unwritable_settings_are_reported(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    done = cli("up", "--port", "0", "--template", ROOT / "template.yaml", "--env-file", tmp_path / "none" / "env")
    assert done.code == 2
    assert "--env-file" in done.err
