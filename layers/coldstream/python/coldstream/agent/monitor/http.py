"""The agent's HTTP server.

/metrics    for Prometheus
/status     for `coldstream agent status`
/healthz    for supervisors: 503 only if a restart would help
/readyz     for supervisors: 503 while the agent starts, and while something is wrong with it as a whole
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Self

from coldstream.agent.monitor.exposition_format import ExpositionFormat
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.monitor.shared_answers import SharedAnswers
from coldstream.errors import InvalidSettingError
from coldstream.web.small_http import JSON_TYPE, HttpAnswer, SmallHttpServer, json_answer

STALLED_S = 60.0
"""Without a turn of the main loop, after which the agent is not healthy."""


class StatusServer:
    """Answers at `host`:`port` from `start` until `stop`; port 0 takes any free one.

    `turned_s` returns how long ago the agent's main loop last turned; threads of the server call it. After `stalled_s`
    the agent is not healthy. An AWS or a broker that is down, or refuses the agent, makes it not ready, but no restart
    would help. One list or scrape is made at a time, for all who wait for one. Health waits for neither, as a
    supervisor would take a slow scrape for a dead agent.

    Whoever can connect can read everything: nothing secret is shown, and nothing can be changed. Raises
    InvalidSettingError if the address cannot be listened on.
    """

    def __init__(
        self,
        metrics: AgentMetrics,
        turned_s: Callable[[], float],
        *,
        host: str,
        port: int,
        stalled_s: float = STALLED_S,
    ) -> None:
        self._metrics = metrics
        self._turned_s = turned_s
        self._stalled_s = stalled_s
        self._answers = SharedAnswers[bytes]()
        try:
            self._server = SmallHttpServer(host, port, self._answer)
        except (OSError, OverflowError, TypeError) as err:
            raise InvalidSettingError("--listen", f"cannot listen on {host} port {port}: {err}") from err
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="status", daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End at once: requests under way are cut off with the process."""
        if self._thread.is_alive():
            # Only with a thread: `shutdown` waits for the end of `serve_forever`, and would wait for ever without one.
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answer(self, path: str, accept: str) -> HttpAnswer:
        match path:
            case "/healthz":
                return self._health()
            case "/readyz":
                return self._readiness()
            case "/metrics":
                return self._scrape(accept)
            case "/status":
                if self._metrics.status is None:
                    return json_answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the agent is starting"})
                return HttpAnswer(HTTPStatus.OK, JSON_TYPE, self._answers.get(path, self._status))
        return json_answer(HTTPStatus.NOT_FOUND, {"error": "there are /metrics, /healthz, /readyz and /status"})

    def _scrape(self, accept: str) -> HttpAnswer:
        wanted = ExpositionFormat.wanted(accept)
        body = self._answers.get(wanted.content_type, lambda: self._metrics.text(wanted))
        return HttpAnswer(HTTPStatus.OK, wanted.content_type, body)

    def _status(self) -> bytes:
        status = self._metrics.status
        assert status is not None
        return status.to_json()

    def _health(self) -> HttpAnswer:
        reasons = self._stalled()
        content = {"healthy": not reasons, "reasons": reasons, "problems": self._problems()}
        return json_answer(HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK, content)

    def _readiness(self) -> HttpAnswer:
        problems = [*self._stalled(), *self._problems()]
        content = {"ready": not problems, "problems": problems}
        return json_answer(HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK, content)

    def _stalled(self) -> list[str]:
        turned_s = self._turned_s()
        return [] if turned_s < self._stalled_s else [f"the main loop has not turned for {turned_s:.0f} s"]

    def _problems(self) -> list[str]:
        status = self._metrics.status
        return ["the agent is starting"] if status is None else list(status.problems)
