"""Calls that block, made in threads for one event loop: waiting for one can be given up at once.

Threads start as calls come, up to a bound. A call that was given up runs on in its thread until its own timeouts end
it, or until its connection is cut; the caller does not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from coldstream.errors import UnavailableError
from coldstream.read.threads import FetchThreads

P = ParamSpec("P")
T = TypeVar("T")


class CallThreads:
    """Makes calls in at most `most` threads of its own, named `name`. Each answers within `within_s`, if that is given.

    It is called as `asyncio.to_thread` is. Raises what the call raises, UnavailableError if it took too long, and
    CancelledError after `close`.
    """

    def __init__(self, name: str, most: int, *, within_s: float | None = None) -> None:
        self._threads = FetchThreads(most, name=f"coldstream-{name}")
        self._most = most
        self._name = name
        self._within_s = within_s

    @property
    def is_crowded(self) -> bool:
        """Whether more than half of the threads are taken: then nobody should have more than one."""
        return self._threads.free < self._most // 2

    async def __call__(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call, and wait for its answer."""
        answer = asyncio.wrap_future(self._threads.submit(partial(call, *args, **kwargs)))
        if self._within_s is None:
            return await answer
        try:
            async with asyncio.timeout(self._within_s):
                return await answer
        except TimeoutError as err:
            raise UnavailableError(f"no answer to a question of {self._name} for {self._within_s:g} s") from err

    def close(self) -> None:
        """Give up all calls, and refuse new ones. Returns at once."""
        self._threads.shutdown()
