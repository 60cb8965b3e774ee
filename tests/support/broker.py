"""A private RabbitMQ for tests and the demo: started here, reachable from here only, gone afterwards.

It shares nothing with a broker that is already installed and running: node name, ports, cookie, data, logs, plugins
and configuration are its own, in a temporary directory, and so is its epmd. Everything listens on loopback. The node
runs as whoever starts it, root included.

    with Broker() as broker, broker.connect() as streams:
        streams.create_stream("orders", max_segment_bytes=1_000_000)
        streams.publish("orders", [b"one", b"two"])
        directory = broker.stream_directory("orders")
        broker.kill()
        broker.start()
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from coldstream.agent.proof.names import may_encode
from tests.support.epmd import HOST, BrokerError, Epmd, check, end, free_ports, kill, spawn
from tests.support.releases import HOST_RELEASE, Release
from tests.support.streams import StreamConnection

SHARDING = ("rabbitmq_sharding", "rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange")
"""Plugins of the exchanges that a sharded stream may have in front of it."""

ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"

__all__ = ["HOST", "Broker", "BrokerError", "find_rabbitmq"]


def find_rabbitmq(release: Release = HOST_RELEASE) -> Path | None:
    """Return the directory of RabbitMQ's own scripts, or None where RabbitMQ or Erlang is missing."""
    return release.scripts


class Broker:
    """One node with the stream plugin. Ready when its context is entered; takes about 6 s to start and 1 s to stop.

    It ends with the thread that started it, so that one has to last. `epmd` is for nodes of a cluster; else it has one
    of its own. `plugins` are more of them, `settings` lines of rabbitmq.conf, `erlang` more arguments of the Erlang VM.
    `ports`, any free ones unless given, are those of AMQP, streams, distribution and management.
    Raises BrokerError where it cannot be started.
    """

    def __init__(
        self,
        *,
        release: Release = HOST_RELEASE,
        management: bool = False,
        plugins: Sequence[str] = (),
        epmd: Epmd | None = None,
        settings: str = "",
        erlang: str = "",
        ports: Sequence[int] | None = None,
        start_timeout_s: float = 60,
        stop_timeout_s: float = 20,
    ) -> None:
        self.host = HOST
        self.release = release
        self.amqp_port, self.stream_port, self._distribution_port, self._management_port = ports or free_ports(4)
        self.node = f"coldstream-{os.getpid()}-{self.stream_port}@localhost"
        self.settings = settings
        self._management = management
        self._plugins = plugins
        self._epmd = Epmd() if epmd is None else epmd
        self._has_own_epmd = epmd is None
        self._erlang = f"{ON_LOOPBACK} {erlang}".strip()
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._notices: socket.socket | None = None
        self._is_paused = False
        self._exit = contextlib.ExitStack()

    @property
    def data_directory(self) -> Path:
        """The directory that holds one directory for each incarnation of a stream."""
        return self._directory / "mnesia" / self.node / "stream"

    @property
    def log(self) -> Path:
        """The node's log file."""
        return self._directory / "log" / f"{self.node}.log"

    @property
    def management_url(self) -> str:
        """The management API, credentials included."""
        return f"http://guest:guest@{HOST}:{self._management_port}"

    @property
    def stream_uri(self) -> str:
        """The stream protocol, credentials included."""
        return f"rabbitmq-stream://guest:guest@{HOST}:{self.stream_port}"

    @property
    def is_running(self) -> bool:
        """Whether the node was started, and neither ended nor paused since."""
        return self._process is not None and not self._is_paused

    @property
    def process_ids(self) -> list[int]:
        """The node's process, while it runs, and its epmd's."""
        return [*([self._process.pid] if self._process is not None else []), self._epmd.process_id]

    @property
    def ports(self) -> list[int]:
        """Every port that the broker listens on."""
        management = [self._management_port] if self._management else []
        return [self.amqp_port, self.stream_port, self._distribution_port, self._epmd.port, *management]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            opening.enter_context(self.prepared())
            if self._has_own_epmd:
                opening.enter_context(self._epmd)
            opening.callback(self.stop)
            self.start()
            self._exit = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Have the node's directory, for a node that is not started yet."""
        if find_rabbitmq(self.release) is None:
            raise BrokerError(f"RabbitMQ {self.release.version} is not installed ({self.release.remedy})")
        with tempfile.TemporaryDirectory(prefix="coldstream-broker-", ignore_cleanup_errors=True) as directory:
            self._directory = Path(directory)
            self._configure()
            yield

    def begin(self) -> None:
        """Start the node, on the directory and ports that it had before, without waiting for it."""
        notify = self._directory / "notify"
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.unlink(missing_ok=True)
        self._notices.bind(str(notify))
        # As under systemd: the broker says there when it is ready, and no shell runs around it.
        environment = self._environment() | {"NOTIFY_SOCKET": str(notify)}
        command = self.release.command("rabbitmq-server")
        self._process = spawn(command, environment=environment, directory=self._directory)

    def wait_ready(self) -> None:
        """Wait until the node that `begin` started takes connections."""
        assert self._process is not None
        assert self._notices is not None
        deadline = time.monotonic() + self._start_timeout_s
        self._notices.settimeout(0.5)
        is_ready = False
        while not is_ready:
            check(self._process, deadline, self._directory)
            with contextlib.suppress(TimeoutError):
                is_ready = b"READY=1" in self._notices.recv(4096)
        self._notices.close()

    def start(self) -> None:
        """Start the node, again after it was stopped or killed; about 6 s."""
        self.begin()
        self.wait_ready()

    def stop(self) -> None:
        """Let the node end in order; about 1 s. Its data stay until the context ends."""
        if self._process is not None:
            end(self._process, self._stop_timeout_s)
            self._forget_process()

    def kill(self) -> None:
        """End the node at once, as a crash does. Within a second of its first stream it would forget that one."""
        if self._process is not None:
            kill(self._process)
            self._forget_process()

    def pause(self) -> None:
        """Stop the node where it is: it keeps its connections and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # Its threads stop one by one, each when it gets a core.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._is_paused = True

    def resume(self) -> None:
        """Let a paused node go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._is_paused = False

    def connect(self, vhost: str = "/") -> StreamConnection:
        """Return a connection by the stream protocol, to be used as a context manager."""
        return StreamConnection(self.host, self.stream_port, vhost)

    def add_vhost(self, vhost: str) -> None:
        """Create a virtual host that the default user may do everything in."""
        self.ctl("add_vhost", vhost)
        self.ctl("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")

    def stream_directory(self, stream: str, vhost: str = "/") -> Path:
        """Return the directory with the segments of a stream's present incarnation, whatever its names' characters.

        The broker is asked only if the disk leaves it in doubt: its tool takes a second of processor time.
        """
        # Its tool also knows of a directory that is about to be made, as that of a node's first stream may be.
        paths = self.data_directory.iterdir() if self.data_directory.is_dir() else ()
        found = [path for path in paths if may_encode(path.name.rpartition("_")[0], vhost, stream)]
        return found[0] if len(found) == 1 else self.told_directory(stream, vhost)

    def told_directory(self, stream: str, vhost: str = "/") -> Path:
        """Return what the broker says that a stream's directory is."""
        queue = f"rabbit_misc:r({_erlang_binary(vhost)}, queue, {_erlang_binary(stream)})"
        state = f"amqqueue:get_type_state(element(2, rabbit_amqqueue:lookup({queue})))"
        return self.data_directory / self.ctl("eval", f"maps:get(name, {state}).").strip().strip('"')

    def ctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` on this node and return what it prints; about 0.4 s."""
        return self.tool("rabbitmqctl", *arguments)

    def tool(self, program: str, *arguments: str) -> str:
        """Run one of RabbitMQ's command line tools on this node, such as `rabbitmq-streams`. As `ctl`."""
        done = subprocess.run(
            self.release.command(program, "--quiet", "--node", self.node, *arguments),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def _forget_process(self) -> None:
        assert self._notices is not None
        self._notices.close()
        self._process = None
        self._is_paused = False

    def _configure(self) -> None:
        management = ["rabbitmq_management"] if self._management else []
        plugins = ["rabbitmq_stream", *SHARDING, *management, *self._plugins]
        (self._directory / "rabbitmq-env.conf").touch()
        (self._directory / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
        (self._directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {HOST}:{self.amqp_port}\n"
            f"stream.listeners.tcp.1 = {HOST}:{self.stream_port}\n"
            f"stream.advertised_host = {HOST}\n"
            f"stream.advertised_port = {self.stream_port}\n"
            "disk_free_limit.absolute = 50MB\n"
            f"{self._management_settings()}{self.settings}"
        )

    def _management_settings(self) -> str:
        if not self._management:
            return ""
        return (
            f"management.tcp.ip = {HOST}\n"
            f"management.tcp.port = {self._management_port}\n"
            "collect_statistics_interval = 1000\n"
        )

    def _environment(self) -> dict[str, str]:
        directory = str(self._directory)
        return self._epmd.environment | {
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/rabbitmq-env.conf",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_CTL_ERL_ARGS": ON_LOOPBACK,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/enabled_plugins",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": self._erlang,
        }


def _erlang_binary(text: str) -> str:
    return f"<<{','.join(str(byte) for byte in text.encode())}>>"
