"""The parent's HTTP server, for operators and their tools.

/metrics    for Prometheus: the sum over all processes
/healthz    503 unless clients should be sent here: a process listens, the broker answers (in archive-only mode the
            archive), and the gateway is not draining. For load balancers and readiness
/livez      503 only if a restart would help. For liveness
/status     for `coldstream gateway status`
"""

from __future__ import annotations

import threading
import time
from http import HTTPStatus
from typing import Self

import coldstream
from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.broker_probe import BrokerProbe
from coldstream.gateway.process.metrics import metrics_text
from coldstream.gateway.process.status import GatewayStatus, ProcessStatus
from coldstream.gateway.process.supervisor import Supervisor
from coldstream.units import now_ms
from coldstream.web.small_http import JSON_TYPE, HttpAnswer, SmallHttpServer, json_answer

STALLED_S = 60.0
"""Without a turn of the parent's loop, after which it hangs."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class GatewayAdmin:
    """Answers at an address while its context is open.

    Whoever can connect can read everything: nothing secret is shown, and nothing can be changed. Raises
    InvalidSettingError if the address cannot be listened on.
    """

    def __init__(self, supervisor: Supervisor, probe: BrokerProbe | None, address: HostPort) -> None:
        self._supervisor = supervisor
        self._probe = probe
        try:
            self._server = SmallHttpServer(address.host, address.port, self._answer)
        except (OSError, OverflowError) as err:
            raise InvalidSettingError("--admin", f"cannot listen on {address}: {err}") from err
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="admin", daemon=True)

    @property
    def address(self) -> HostPort:
        """The address that the server listens at."""
        host, port = self._server.server_address[:2]
        return HostPort(str(host), int(port))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def status(self) -> GatewayStatus:
        """Return how the gateway is."""
        supervisor, now = self._supervisor, time.monotonic()
        options, generation = supervisor.options, supervisor.generation()
        processes = tuple(
            ProcessStatus(child.number, child.pid, child.is_listening, max(0.0, now - child.reported_at), child.report)
            for child in generation.children
        )
        return GatewayStatus(
            version=coldstream.__version__,
            at=now_ms(),
            up_s=now - supervisor.began_at,
            listen=str(supervisor.listen),
            mode="proxy" if options.alone is None else "archive-only",
            is_draining=supervisor.is_draining,
            problems=tuple(self._problems(processes)),
            restarts=generation.restarts,
            processes=processes,
            ended=generation.ended,
            memory_bytes=options.memory_bytes,
        )

    def _problems(self, processes: tuple[ProcessStatus, ...]) -> list[str]:
        problems = []
        if self._supervisor.is_draining:
            problems.append("the gateway is draining")
        if not any(process.is_serving for process in processes):
            states = (f"process {process.number} {process.state}" for process in processes)
            problems.append(f"no process serves: {', '.join(states) or 'none runs'}")
        if self._probe is not None and self._probe.problem is not None:
            problems.append(f"the broker doesn't answer: {self._probe.problem}")
        archive = archive_problem(processes)
        # In front of a broker, clients are better off with what the broker has than with nothing.
        if self._probe is None and archive is not None:
            problems.append(f"the archive doesn't answer: {archive}")
        return problems

    def _answer(self, path: str, accept: str) -> HttpAnswer:  # noqa: ARG002  the server's signature
        match path:
            case "/metrics":
                return HttpAnswer(HTTPStatus.OK, _TEXT, self._metrics().encode())
            case "/status":
                return HttpAnswer(HTTPStatus.OK, JSON_TYPE, self.status().to_json())
            case "/healthz" | "/readyz":
                problems = list(self.status().problems)
                status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
                return json_answer(status, {"ready": not problems, "problems": problems})
            case "/livez":
                stalled_s = time.monotonic() - self._supervisor.turned_at
                reasons = [f"the parent has hung for {stalled_s:.0f} s"] if stalled_s > STALLED_S else []
                status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
                return json_answer(status, {"healthy": not reasons, "reasons": reasons})
        return json_answer(HTTPStatus.NOT_FOUND, {"error": "there are /metrics, /healthz, /livez and /status"})

    def _metrics(self) -> str:
        status = self.status()
        return metrics_text(
            status,
            broker_up=None if self._probe is None else self._probe.problem is None,
            archive_up=archive_problem(status.processes) is None,
        )


def archive_problem(processes: tuple[ProcessStatus, ...]) -> str | None:
    """Return why the archive answers no process, None if it answers one."""
    problems = [process.report.archive_problem for process in processes if process.is_serving]
    return problems[0] if problems and all(problem is not None for problem in problems) else None
