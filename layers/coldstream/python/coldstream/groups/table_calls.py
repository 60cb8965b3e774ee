"""Calls to the table, which block, made by code that must not: in a thread each, or one step at a time in a test.

What a member does is coroutines that wait for nothing but these calls. So whoever provides them decides what comes
between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TableCalls(Protocol):
    """Makes a blocking call and returns its answer, as `asyncio.to_thread` does."""

    async def __call__(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call. Raises what it raises."""
        ...
