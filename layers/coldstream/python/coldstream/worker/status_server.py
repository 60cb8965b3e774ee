"""The worker's HTTP server.

/metrics    for Prometheus
/healthz    for supervisors: 503 only if a restart would help
/readyz     for supervisors: 503 while the table does not answer
"""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import Self

from coldstream.errors import InvalidSettingError
from coldstream.web.small_http import HttpAnswer, SmallHttpServer, json_answer
from coldstream.worker.metrics import WorkerMetrics

STALLED_S = 180.0
"""Without a look at the table that succeeded, or failed, the worker's loop hangs."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class WorkerStatusServer:
    """Answers at `host`:`port` while its context is open; port 0 takes any free one.

    Whoever can connect can read everything: nothing secret is shown, and nothing can be changed. Raises
    InvalidSettingError if the address cannot be listened on.
    """

    def __init__(self, metrics: WorkerMetrics, *, host: str, port: int) -> None:
        self._metrics = metrics
        try:
            self._server = SmallHttpServer(host, port, self._answer)
        except (OSError, OverflowError) as err:
            raise InvalidSettingError("--metrics", f"cannot listen on {host} port {port}: {err}") from err
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="status", daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, path: str, accept: str) -> HttpAnswer:  # noqa: ARG002  the server's signature
        stalled_s = self._metrics.turned_s
        problems = [] if self._metrics.problem is None else [self._metrics.problem]
        stalled = [f"no look for jobs for {stalled_s:.0f} s"] if stalled_s > STALLED_S else []
        match path:
            case "/metrics":
                return HttpAnswer(HTTPStatus.OK, _TEXT, self._metrics.text().encode())
            case "/healthz":
                status = HTTPStatus.SERVICE_UNAVAILABLE if stalled else HTTPStatus.OK
                return json_answer(status, {"healthy": not stalled, "reasons": stalled, "problems": problems})
            case "/readyz":
                status = HTTPStatus.SERVICE_UNAVAILABLE if stalled or problems else HTTPStatus.OK
                return json_answer(status, {"ready": not (stalled or problems), "problems": [*stalled, *problems]})
        return json_answer(HTTPStatus.NOT_FOUND, {"error": "there are /metrics, /healthz and /readyz"})
