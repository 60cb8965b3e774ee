"""`coldstream serve` in this process, over stores in memory: applications of ASGI, served by a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from hashlib import sha256

import httpx
import uvicorn
from starlette.types import ASGIApp

from coldstream.serve.app import make_app
from coldstream.serve.options import ServeOptions
from coldstream.serve.stream_host import StreamHost
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import DirectArchive, StreamClient
from coldstream.web.access_tokens import AccessTokens
from coldstream.web.guarded_connection import MAX_HEAD_BYTES, GuardedConnection

START_TIMEOUT_S = 30


def memory_archive() -> DirectArchive:
    """Make an empty archive."""
    return DirectArchive(MemoryTable(), MemoryObjects(), Keys("archive/"))


def tokens(*lines: str) -> AccessTokens:
    """Parse lines of a file of tokens in which a token itself is in the place of its digest."""
    return AccessTokens.parse(
        [f"{sha256(token.encode()).hexdigest()} {rest}" for token, rest in (line.split(" ", 1) for line in lines)]
    )


@asynccontextmanager
async def hosting(
    archive: DirectArchive, options: ServeOptions | None = None, tokens: AccessTokens | None = None
) -> AsyncIterator[tuple[StreamHost, ASGIApp]]:
    """Have a host of an archive, and its application, for the duration of the block."""
    host = StreamHost(await StreamClient.open(archive), archive, options or ServeOptions())
    try:
        yield host, make_app(host, tokens)
    finally:
        await host.close()


def asgi_client(app: ASGIApp) -> httpx.AsyncClient:
    """Return a client of an application in this event loop, without a socket between."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@contextmanager
def served(make: Callable[[], AbstractAsyncContextManager[ASGIApp]]) -> Iterator[str]:
    """Serve an application on a free port of the loopback; yield its URL."""
    ready: list[str | BaseException] = []
    is_ready, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with make() as app:
            config = uvicorn.Config(
                app,
                http=GuardedConnection,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                port=0,
                log_level="error",
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
            server = uvicorn.Server(config)
            serving = asyncio.ensure_future(server.serve())
            while not server.started and not serving.done():  # noqa: ASYNC110  uvicorn has no event for it
                await asyncio.sleep(0.01)
            ready.append("http://{}:{}".format(*server.servers[0].sockets[0].getsockname()))
            is_ready.set()
            await asyncio.to_thread(is_over.wait)
            server.should_exit = True
            await serving

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as err:
            ready.append(err)
            raise
        finally:
            is_ready.set()

    thread = threading.Thread(target=run, name="served")
    thread.start()
    try:
        assert is_ready.wait(START_TIMEOUT_S)
        assert isinstance(ready[0], str), ready[0]
        yield ready[0]
    finally:
        is_over.set()
        thread.join()
