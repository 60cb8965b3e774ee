"""A Docker engine: the machine's own where one answers, else a private one, which ends with its starter."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from coldstream.errors import UnavailableError
from tests.support.epmd import end, spawn
from tests.support.server import ROOT

IMAGE = "coldstream/lambda-python:3.11"
START_TIMEOUT_S = 60.0
IMAGE_TIMEOUT_S = 900
COMMAND_TIMEOUT_S = 60
BRIDGE_SUBNETS = range(1, 128)
"""The third number of link-local networks of /24 (RFC 3927), which nobody routes; the cloud's services are above."""

PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin"


def find_docker() -> bool:
    """Tell whether an engine answers, or one can be started: by root, where `dockerd` is installed."""
    return _answers({}) or (os.geteuid() == 0 and shutil.which("dockerd", path=PATH) is not None)


class DockerEngine:
    """An engine that has the functions' base image. Ready when its context is entered.

    `environment` is what clients are to be given. A private engine has its own directories, socket and bridge, so that
    several run side by side, and no image but what it is given. It changes neither the firewall nor whether the machine
    routes: containers reach this machine, and nobody else. Raises UnavailableError.
    """

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._bridge = ""

    @property
    def gateway(self) -> str:
        """This machine's address on the bridge: where containers reach it, and nobody outside of it."""
        gateway = "{{range .IPAM.Config}}{{.Gateway}}{{end}}"
        return _checked("docker", "network", "inspect", "--format", gateway, "bridge", **self.environment).strip()

    def __enter__(self) -> Self:
        try:
            if not _answers(self.environment):
                self._start()
            built = subprocess.run(
                [ROOT / "scripts/build-lambda-image", _python()],
                env={**os.environ, "PATH": PATH, **self.environment},
                capture_output=True,
                text=True,
                timeout=IMAGE_TIMEOUT_S,
                check=False,
            )
            if built.returncode:
                raise UnavailableError(f"the functions' base image could not be made: {built.stderr[-2000:]}")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        self._directory = directory = Path(tempfile.mkdtemp(prefix="coldstream-docker-"))
        self._make_bridge()
        socket = f"unix://{directory}/docker.sock"
        self.environment = {"DOCKER_HOST": socket}
        command = ["dockerd", "--host", socket, "--pidfile", f"{directory}/pid"]
        command += ["--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec"]
        command += ["--bridge", self._bridge, "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        own = {"PATH": PATH, "HOME": str(directory), "LANG": "C.UTF-8"}
        self._process = spawn(command, environment=own, directory=directory)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(self.environment):
            if self._process.poll() is not None or time.monotonic() > deadline:
                output = (directory / "output").read_text(errors="replace")
                raise UnavailableError(f"a private Docker engine did not start:\n{output[-4000:]}")
            time.sleep(0.1)

    def _make_bridge(self) -> None:
        taken = _checked("ip", "-4", "-oneline", "address")
        subnet = random.SystemRandom().choice([n for n in BRIDGE_SUBNETS if f" 169.254.{n}." not in taken])
        bridge = f"cold-{secrets.token_hex(4)}"
        _checked("ip", "link", "add", bridge, "type", "bridge")
        self._bridge = bridge
        _checked("ip", "address", "add", f"169.254.{subnet}.1/24", "dev", bridge)
        _checked("ip", "link", "set", bridge, "up")

    def _stop(self) -> None:
        if self._directory is None:
            return
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                left = _docker(self.environment, "ps", "--all", "--quiet").stdout.split()
                _docker(self.environment, "rm", "--force", *left)
            end(self._process, START_TIMEOUT_S)
            self._process = None
        if self._bridge:
            _run("ip", "link", "delete", self._bridge)
            self._bridge = ""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None
        self.environment = {}


def _python() -> str:
    return str(ROOT / ".venv-sam/bin/python")


def _answers(environment: Mapping[str, str]) -> bool:
    return shutil.which("docker", path=PATH) is not None and _docker(environment, "info").returncode == 0


def _docker(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run("docker", *arguments, **environment)


def _checked(*command: str, **environment: str) -> str:
    done = _run(*command, **environment)
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "PATH": PATH, **environment}
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
