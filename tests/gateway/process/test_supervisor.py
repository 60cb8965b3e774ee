"""The parent and its children, as processes: tests.support.gateway_child serves words in place of the protocol."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import coldstream

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[3]
PACKAGES = Path(coldstream.__path__[0]).parent
WITHIN_S = 60


class Running:
    """A parent that a test started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self._log = log
        self.port, self.admin = map(int, process.stdout.readline().split())

    def connect(self) -> tuple[socket.socket, int]:
        """Return a connection, and the number of the child that took it."""
        connection = socket.create_connection(("127.0.0.1", self.port), WITHIN_S)
        return connection, int(connection.recv(64))

    def children(self) -> set[int]:
        connected = set()
        for _ in range(64):
            connection, number = self.connect()
            connection.close()
            connected.add(number)
        return connected

    def ask(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=WITHIN_S) as response:
                return response.status, response.read().decode()
        except HTTPError as err:
            with err:
                return err.code, err.read().decode()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/status")[1])
        return found

    def metric(self, name: str) -> int:
        (value,) = [line.split()[1] for line in self.ask("/metrics")[1].splitlines() if line.startswith(f"{name} ")]
        return int(value)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


def settled(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


@contextmanager
def parent(directory: Path, *arguments: object) -> Iterator[Running]:
    command = [sys.executable, "-m", "tests.support.gateway_parent", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGES}{os.pathsep}{ROOT}"}
    log = directory / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            yield Running(process, log)
        finally:
            process.kill()


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_each_process_takes_connections_at_one_address(tmp_path: Path) -> None:
    with parent(tmp_path, 2, 1) as running:
        assert running.children() == {0, 1}


def test_a_child_that_dies_is_started_again_and_its_totals_stay(tmp_path: Path) -> None:
    with parent(tmp_path, 2, 1) as running:
        connection, number = running.connect()
        with connection:
            connection.sendall(b"count ")
            assert connection.recv(64) == b"done\n"
            settled(lambda: running.metric("coldstream_gateway_takeovers_total") == 1)
            connection.sendall(b"die")
            settled(lambda: running.metric("coldstream_gateway_process_restarts_total") == 1)
        # Meanwhile the other takes everything.
        assert running.children() <= {0, 1}
        settled(lambda: sum(process["listening"] for process in running.status()["processes"]) == 2)
        settled(lambda: number in running.children())
        assert running.metric("coldstream_gateway_takeovers_total") == 1
        (told,) = [line for line in running.log() if line["message"] == "a process has ended, and is started again"]
        assert (told["child"], told["status"]) == (number, 9)


def test_a_child_without_free_descriptors_still_tells_what_it_counts(tmp_path: Path) -> None:
    with parent(tmp_path, 1, 1) as running:
        connection, _ = running.connect()
        with connection:
            connection.sendall(b"exhaust count ")
            settled(lambda: running.metric("coldstream_gateway_takeovers_total") == 1)


def test_a_child_that_cannot_say_what_is_cold_still_tells_what_it_counts(tmp_path: Path) -> None:
    with parent(tmp_path, 1, 1) as running:
        connection, _ = running.connect()
        with connection:
            connection.sendall(b"confuse count ")
            settled(lambda: running.metric("coldstream_gateway_takeovers_total") == 1)
            reported = running.status()["at"]
            settled(lambda: running.status()["at"] > reported + 2_500)
            assert running.status()["processes"][0]["cold"] == []
            assert running.status()["processes"][0]["silent_s"] < 60
        told = [line for line in running.log() if line["message"] == "the subscriptions to the archive cannot be shown"]
        assert len(told) == 1
        assert "LookupError: what is cold" in told[0]["traceback"]


def test_sigterm_lets_connections_go_and_ends_with_0(tmp_path: Path) -> None:
    # The only client of a process is told at once: nobody waits for a part of the time to drain.
    with parent(tmp_path, 2, 10 * WITHIN_S) as running:
        connection, _ = running.connect()
        with connection:
            running.signal(signal.SIGTERM)
            assert connection.recv(64) == b"go\n"
            assert connection.recv(64) == b""
        assert running.process.wait(WITHIN_S) == 0


def test_while_it_drains_it_takes_no_connections_and_is_not_ready(tmp_path: Path) -> None:
    with parent(tmp_path, 1, 60) as running:
        assert running.ask("/healthz")[0] == 200
        connection, _ = running.connect()
        with connection:
            connection.sendall(b"linger")
            assert connection.recv(64) == b"done\n"
            running.signal(signal.SIGTERM)
            settled(lambda: running.metric("coldstream_gateway_draining") == 1)
            status, body = running.ask("/healthz")
            assert (status, json.loads(body)["problems"][0]) == (503, "the gateway is draining")
            assert running.ask("/livez")[0] == 200

            def refuses() -> bool:
                try:
                    running.connect()[0].close()
                except (OSError, ValueError):
                    return True
                return False

            settled(refuses)
            # A client that stays can still be served.
            connection.sendall(b"linger")
            assert connection.recv(64) == b"done\n"
        assert running.process.wait(WITHIN_S) == 0


def test_draining_is_bounded(tmp_path: Path) -> None:
    with parent(tmp_path, 1, 0.5) as running:
        connection, _ = running.connect()
        with connection:
            connection.sendall(b"linger")
            assert connection.recv(64) == b"done\n"
            running.signal(signal.SIGTERM)
            assert running.process.wait(WITHIN_S) == 0
        assert [line["connections"] for line in running.log() if line["message"] == "connections are cut off"] == [1]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_everything_at_once(tmp_path: Path, second: signal.Signals) -> None:
    with parent(tmp_path, 2, 600) as running:
        pids = [process["pid"] for process in running.status()["processes"]]
        connection, _ = running.connect()
        with connection:
            connection.sendall(b"linger")
            assert connection.recv(64) == b"done\n"
            running.signal(signal.SIGTERM)
            settled(lambda: running.metric("coldstream_gateway_draining") == 1)
            running.signal(second)
            assert running.process.wait(WITHIN_S) == 128 + second
        assert not [pid for pid in pids if exists(pid)]


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with parent(tmp_path, 2, 1) as running:
        pids = [process["pid"] for process in running.status()["processes"]]
        assert all(map(exists, pids))
        running.signal(signal.SIGKILL)
        settled(lambda: not [pid for pid in pids if exists(pid)])


def test_a_setting_that_a_child_finds_wrong_ends_the_gateway(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.gateway_parent", "2", "1", "refuse"]
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGES}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines()[-1] == "--advertise: is refused"


def test_the_status_has_each_process_and_its_coldest_subscriptions(tmp_path: Path) -> None:
    with parent(tmp_path, 2, 1) as running:
        settled(lambda: all(process["cold"] for process in running.status()["processes"]))
        status = running.status()
        assert (status["ready"], status["mode"]) == (True, "archive-only")
        assert status["listen"] == f"127.0.0.1:{running.port}"
        assert [process["number"] for process in status["processes"]] == [0, 1]
        assert status["processes"][0]["cold"] == [["127.0.0.1:1", "/", "заказы", 5, 7]]
        assert running.metric("coldstream_gateway_processes") == 2
        assert running.metric("coldstream_gateway_resident_bytes") > 1 << 20
        assert running.ask("/nothing")[0] == 404
