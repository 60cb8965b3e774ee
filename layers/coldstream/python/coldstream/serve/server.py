"""The server of streams: its beginning, what it does beside requests, and its orderly end.

At the end it lets live reads end and other requests finish, and closes all streams: then everything that was appended
is in the manifest, and whoever opens them next has nothing to recover. If it is ended at once, what was acknowledged is
in the write-ahead log, and recovered by whoever opens the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from coldstream.errors import ColdstreamError
from coldstream.serve.app import make_app
from coldstream.serve.options import ServeOptions
from coldstream.serve.stream_host import StreamHost
from coldstream.streams import DirectArchive, StreamClient
from coldstream.web.access_tokens import AccessTokens
from coldstream.web.listening import Listening
from coldstream.web.server_process import serve_until_signal

TIDY_EVERY_S = 1.0
_LOG = logging.getLogger(__name__)


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
    tidying = asyncio.ensure_future(_tidy(host))
    try:
        # Live reads would keep their connections otherwise: they end with the host.
        await serve_until_signal(make_app(host, tokens), listening, bound, on_ready=on_ready, on_end=host.stop)
    finally:
        tidying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await tidying
        await host.close()


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
