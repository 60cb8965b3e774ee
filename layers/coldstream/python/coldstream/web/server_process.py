"""A server's process: uvicorn, and its orderly end.

At SIGTERM or Ctrl-C it takes no connection any more, and lets requests finish. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from coldstream.web.guarded_connection import MAX_HEAD_BYTES, GuardedConnection
from coldstream.web.listening import Listening

FINISH_WITHIN_S = 30
"""For requests under way when the server is to end."""

_INTERRUPTED = 130
_LOG = logging.getLogger(__name__)


async def serve_until_signal(
    app: ASGIApp,
    listening: Listening,
    bound: socket.socket,
    *,
    on_ready: Callable[[str], None] = lambda _: None,
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application at the address that was taken, until a signal ends it.

    `on_ready` is called with the URL once the server listens. `on_end` is called at the first signal: it ends requests
    that would last until somebody ends them.
    """
    config = uvicorn.Config(
        app,
        http=GuardedConnection,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.private_key,
        limit_concurrency=listening.max_connections,
        timeout_graceful_shutdown=FINISH_WITHIN_S,
        access_log=False,
        log_config=None,
        server_header=False,
        lifespan="off",
        ws="none",
    )
    server = _OrderlyServer(config, lambda: on_ready(listening.url(bound)))
    _end_by_signals(server, on_end)
    await server.serve([bound])


class _OrderlyServer(uvicorn.Server):
    """A server that leaves signals to `serve_until_signal`, and says when it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing. uvicorn would raise the signal again at its end, before whoever called could close anything."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._on_ready()


def _end_by_signals(server: uvicorn.Server, on_end: Callable[[], None]) -> None:
    """Have the first signal end the server orderly, and a second one at once."""

    def end() -> None:
        if server.should_exit:
            os._exit(_INTERRUPTED)
        _LOG.info("ending")
        on_end()
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP, and means it
            asyncio.get_running_loop().add_signal_handler(number, end)
