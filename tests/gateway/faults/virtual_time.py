"""An event loop whose clock jumps: a week passes as fast as what happens in it can be worked off.

    run_virtually(main())

The loop waits for nothing. Where asyncio would sleep until the next timer, the clock is put forward to it. Calls to
threads are made at once, in the loop's own thread, so that a run depends on its seed alone. Sockets are replaced by
`memory_network.py`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.gateway.faults.memory_network import MemoryNetwork

T = TypeVar("T")

START_S = 1_000.0


class StandstillError(Exception):
    """Nothing will ever happen any more, and the run is not done: something waits for what never comes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. `network` is what `create_server` and `create_connection` use."""

    def __init__(self, seed: int = 0) -> None:
        self._now_s = START_S
        super().__init__(_JumpingSelector(self))
        self._clock_resolution = 1e-6  # sums of floats: a timer that is due within it is due
        self.network = MemoryNetwork(self, seed)

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        """Put the clock forward."""
        self._now_s += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as err:  # noqa: BLE001  as a thread hands it over
            done.set_exception(err)
        return done

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self.network.listen(protocol_factory, port or 0)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(protocol_factory, port)


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise StandstillError
        if timeout > 0:
            self._loop.jump(timeout)
        return []  # nothing comes from outside


def run_virtually(main: Coroutine[Any, Any, T], seed: int = 0) -> T:
    """Run until `main` is done. Raises StandstillError."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(main)


def virtual_loop() -> VirtualLoop:
    """Return the loop that runs this."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop
