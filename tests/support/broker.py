"""A private RabbitMQ for tests and the demo: started here, reachable from here only, gone afterwards.

It shares nothing with a broker that is already installed and running: node name, ports, cookie, data, logs, plugins
and configuration are its own, in a temporary directory, and so is its epmd. Everything listens on loopback. The node
runs as whoever starts it, root included.

    with Broker() as broker, broker.connect() as streams:
        streams.create_stream("orders", max_segment_bytes=1_000_000)
        streams.publish("orders", [b"one", b"two"])
        directory = broker.stream_directory("orders")
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.streams import StreamConnection

HOST = "127.0.0.1"
ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
# Below the ports that systems hand out to outgoing connections (32768 on Linux), so that none is taken meanwhile.
PORTS = range(15_000, 32_000)
DEBIAN_SCRIPTS = Path("/usr/lib/rabbitmq/bin")


class BrokerError(Exception):
    """The private broker could not be started, or refused a command."""


def find_rabbitmq() -> Path | None:
    """Return the directory of RabbitMQ's own scripts, or None where RabbitMQ or Erlang is missing.

    Distributions put wrappers on the PATH that change user; behind them are the scripts that do not.
    """
    if shutil.which("erl") is None or shutil.which("epmd") is None:
        return None
    on_path = shutil.which("rabbitmq-server")
    for scripts in ([] if on_path is None else [Path(on_path).resolve().parent]) + [DEBIAN_SCRIPTS]:
        if (scripts / "rabbitmq-env").is_file():
            return (scripts / "rabbitmq-server").resolve().parent
    return None


class Broker:
    """One node with the stream plugin. Ready when its context is entered; takes about 6 s to start and 1 s to stop.

    It ends with the thread that started it, so that one has to last. Raises BrokerError where it cannot be started.
    """

    def __init__(self, *, start_timeout_s: float = 60, stop_timeout_s: float = 20) -> None:
        self.host = HOST
        self.amqp_port, self.stream_port, self._distribution_port, self._epmd_port = _free_ports(4)
        self.node = f"coldstream-{os.getpid()}-{self.stream_port}@localhost"
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._directory = Path()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def data_directory(self) -> Path:
        """The directory that holds one directory for each incarnation of a stream."""
        return self._directory / "mnesia" / self.node / "stream"

    @property
    def process_ids(self) -> list[int]:
        """The node's process and its epmd's."""
        return [process.pid for process in self._processes]

    @property
    def ports(self) -> list[int]:
        """Every port that the broker listens on."""
        return [self.amqp_port, self.stream_port, self._distribution_port, self._epmd_port]

    def __enter__(self) -> Self:
        scripts = find_rabbitmq()
        if scripts is None:
            raise BrokerError("RabbitMQ is not installed (on Debian: apt-get install rabbitmq-server)")
        self._scripts = scripts
        self._directory = Path(tempfile.mkdtemp(prefix="coldstream-broker-"))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def connect(self, vhost: str = "/") -> StreamConnection:
        """Return a connection by the stream protocol, to be used as a context manager."""
        return StreamConnection(self.host, self.stream_port, vhost)

    def add_vhost(self, vhost: str) -> None:
        """Create a virtual host that the default user may do everything in."""
        self.ctl("add_vhost", vhost)
        self.ctl("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")

    def stream_directory(self, stream: str, vhost: str = "/") -> Path:
        """Return the directory with the segments of a stream's present incarnation, whatever its names' characters."""
        queue = f"rabbit_misc:r({_erlang_binary(vhost)}, queue, {_erlang_binary(stream)})"
        state = f"amqqueue:get_type_state(element(2, rabbit_amqqueue:lookup({queue})))"
        return self.data_directory / self.ctl("eval", f"maps:get(name, {state}).").strip().strip('"')

    def ctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` on this node and return what it prints; about 0.4 s."""
        done = subprocess.run(
            [self._scripts / "rabbitmqctl", "--quiet", "--node", self.node, *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def _start(self) -> None:
        (self._directory / "home").mkdir()
        (self._directory / "rabbitmq-env.conf").touch()
        (self._directory / "enabled_plugins").write_text("[rabbitmq_stream].\n")
        (self._directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {HOST}:{self.amqp_port}\n"
            f"stream.listeners.tcp.1 = {HOST}:{self.stream_port}\n"
            f"stream.advertised_host = {HOST}\n"
            f"stream.advertised_port = {self.stream_port}\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        deadline = time.monotonic() + self._start_timeout_s
        # A node that finds no epmd starts one, which outlives it.
        epmd = self._spawn("epmd", "-address", HOST, "-port", str(self._epmd_port))
        while not _accepts(self._epmd_port):
            self._check(epmd, deadline)
            time.sleep(0.01)
        # As under systemd: the broker says here when it is ready, and no shell runs around it.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(str(self._directory / "notify"))
            node = self._spawn(str(self._scripts / "rabbitmq-server"), NOTIFY_SOCKET=str(self._directory / "notify"))
            notices.settimeout(0.5)
            while True:
                with contextlib.suppress(TimeoutError):
                    if b"READY=1" in notices.recv(4096):
                        return
                self._check(node, deadline)

    def _check(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        if process.poll() is None and time.monotonic() < deadline:
            return
        problem = "was not ready in time" if process.poll() is None else "ended while it started"
        output = (self._directory / "output").read_text(errors="replace")[-4000:]
        raise BrokerError(f"{process.args} {problem}:\n{output}")

    def _spawn(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        # A session of its own keeps Ctrl-C from it; setpriv ends it also when this process is killed.
        tied_to_us = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        with (self._directory / "output").open("ab") as output:
            process = subprocess.Popen(
                [*tied_to_us, *command],
                env=self._environment() | environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        directory = str(self._directory)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": f"{directory}/home",  # of the Erlang cookie
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/rabbitmq-env.conf",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_CTL_ERL_ARGS": ON_LOOPBACK,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/enabled_plugins",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ON_LOOPBACK,
        }

    def _stop(self) -> None:
        try:
            for process in reversed(self._processes):
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self._stop_timeout_s)
        finally:
            for process in self._processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            self._processes.clear()
            shutil.rmtree(self._directory, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            candidate = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                candidate.bind((HOST, random.SystemRandom().choice(PORTS)))
                ports.append(candidate.getsockname()[1])
        return ports


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def _erlang_binary(text: str) -> str:
    return f"<<{','.join(str(byte) for byte in text.encode())}>>"
