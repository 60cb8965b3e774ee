"""The server's process: uvicorn, and its orderly end.

At SIGTERM or Ctrl-C it takes no connection any more, lets live reads end and others finish, and closes all streams:
then everything that was appended is in the manifest, and whoever opens them next has nothing to recover. A second
signal ends it at once. What was acknowledged is in the write-ahead log then, and recovered by whoever opens the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from coldstream.errors import ColdstreamError, InvalidSettingError
from coldstream.serve.access_tokens import AccessTokens
from coldstream.serve.app import make_app
from coldstream.serve.browser_guard import is_loopback
from coldstream.serve.guarded_connection import MAX_HEAD_BYTES, GuardedConnection
from coldstream.serve.options import ServeOptions
from coldstream.serve.stream_host import StreamHost
from coldstream.streams import DirectArchive, StreamClient

TIDY_EVERY_S = 1.0
FINISH_WITHIN_S = 30
"""For requests under way when the server is to end. Live reads end at once."""

_INTERRUPTED = 130
_BACKLOG = 2048
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the server listens, and with which certificate; without one it speaks plain HTTP.

    `max_connections` are those of all clients together; a request beyond is answered 503.
    """

    host: str = "127.0.0.1"
    port: int = 4437
    certificate: Path | None = None
    private_key: Path | None = None
    max_connections: int = 12_000

    def bind(self) -> socket.socket:
        """Take the address. Raises InvalidSettingError if that is impossible."""
        try:
            infos = socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_STREAM)
            return socket.create_server(infos[0][4][:2], family=infos[0][0], backlog=_BACKLOG)
        except OSError as err:
            raise InvalidSettingError("host", f"{self.host} port {self.port}: {err.strerror or err}") from err

    def url(self, bound: socket.socket) -> str:
        """Return the URL of the server once it has taken its address."""
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.certificate is None else 'https'}://{shown}:{port}"

    def check(self, tokens: AccessTokens | None) -> None:
        """Raise InvalidSettingError for an address that others reach while nobody needs a token."""
        if tokens is None and not is_loopback(self.host):
            raise InvalidSettingError("token_file", f"is missing: {self.host} can be reached from other machines")


async def run(
    archive: DirectArchive,
    options: ServeOptions,
    listening: Listening,
    tokens: AccessTokens | None = None,
    *,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until a signal ends it, and then close everything. `on_ready` is called with the URL.

    Raises InvalidSettingError, also for an address that cannot be listened at.
    """
    listening.check(tokens)
    bound = listening.bind()
    host = StreamHost(await StreamClient.open(archive), archive, options)
    config = uvicorn.Config(
        make_app(host, tokens),
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
    _end_by_signals(host, server)
    tidying = asyncio.ensure_future(_tidy(host))
    try:
        await server.serve([bound])
    finally:
        tidying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await tidying
        await host.close()


class _OrderlyServer(uvicorn.Server):
    """A server that leaves signals to `run`, and says when it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing. uvicorn would raise the signal again at its end, which would be before the streams are closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._on_ready()


def _end_by_signals(host: StreamHost, server: uvicorn.Server) -> None:
    """Have the first signal end the server orderly, and a second one at once."""

    def end() -> None:
        if server.should_exit:
            os._exit(_INTERRUPTED)
        _LOG.info("ending")
        host.stop()  # live reads would keep their connections otherwise
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP, and means it
            asyncio.get_running_loop().add_signal_handler(number, end)


async def _tidy(host: StreamHost) -> None:
    expired_at = time.monotonic()
    while True:
        await asyncio.sleep(TIDY_EVERY_S)
        try:
            await host.close_idle()
            if time.monotonic() - expired_at >= host.options.expire_every_s:
                expired_at = time.monotonic()
                await host.drop_expired()
        except ColdstreamError as err:
            _LOG.warning("could not tidy up", extra={"error": str(err)})
