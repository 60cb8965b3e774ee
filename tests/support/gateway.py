"""A gateway in front of a broker, in this process: on the event loop of a test, or in a thread of its own.

async with gateway_in_front_of((HOST, broker.stream_port)) as gateway:
    host, port = gateway.place

with GatewayThread((HOST, broker.stream_port)) as gateway:
    StreamConnection(gateway.host, gateway.port)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from coldstream.gateway.ports import MakeInterceptor
from coldstream.gateway.proxy.null_interceptor import NullInterceptor
from coldstream.gateway.proxy.options import ProxyOptions, Upstream
from coldstream.gateway.proxy.server import GatewayServer
from coldstream.live.subscription import Place

HOST = "127.0.0.1"

Result = TypeVar("Result")

Around = Callable[[], AbstractAsyncContextManager[MakeInterceptor]]
"""What makes interceptors, with whatever has to be open around it, on the gateway's loop."""


def gateway_in_front_of(*brokers: Place, make: MakeInterceptor = NullInterceptor, **options: Any) -> GatewayServer:
    """Return a gateway on a free port, to be entered. `options` are those of `ProxyOptions`."""
    return GatewayServer(ProxyOptions(Upstream(brokers), **options), make)


class GatewayThread:
    """A gateway with an event loop and a thread of its own, for clients that block. `around` replaces `make`."""

    def __init__(
        self, *brokers: Place, make: MakeInterceptor = NullInterceptor, around: Around | None = None, **options: Any
    ) -> None:
        self.host = HOST
        self._brokers = brokers
        self._make = make
        self._around = around
        self._options = options
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="gateway")

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def call(self, function: Callable[[GatewayServer], Result]) -> Result:
        """Call something with the gateway, on its loop."""

        async def run() -> Result:
            return function(self.server)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as err:  # noqa: BLE001  the test is to see it, whatever it is
            self._failure = err
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        if self._around is None:
            await self._serve_with(self._make)
        else:
            async with self._around() as make:
                await self._serve_with(make)

    async def _serve_with(self, make: MakeInterceptor) -> None:
        async with gateway_in_front_of(*self._brokers, make=make, **self._options) as self.server:
            self.port = self.server.place[1]
            self._is_ready.set()
            await self._stop.wait()
