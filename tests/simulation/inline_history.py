"""What has a gateway's history call table and bucket in the loop's own thread, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from coldstream.gateway.history import gateway_history, heap
from coldstream.read.http import ClosedError

CALL_S = (0.005, 0.2)


class InlineCalls:
    """In place of `CallThreads`: a call arrives after a while, and its answer comes after another."""

    is_crowded = False
    rng = random.Random()

    def __init__(self, *_: Any, **__: Any) -> None:
        self._is_closed = False

    async def __call__(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        await self._pass()
        answer = call(*args, **named)
        await self._pass()
        return answer

    def close(self) -> None:
        self._is_closed = True

    async def _pass(self) -> None:
        await asyncio.sleep(self.rng.uniform(*CALL_S))
        if self._is_closed:
            raise ClosedError


class InlineReads:
    """In place of `PresignedReads`: a range is read from the bucket without HTTP."""

    def __init__(self, signer: Any, **_: Any) -> None:
        self.get_range = signer.get_range

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def without_threads(rng: random.Random) -> Iterator[None]:
    """Have a gateway's history call in the loop's own thread."""
    with (
        patch.object(InlineCalls, "rng", rng),
        patch.object(gateway_history, "CallThreads", InlineCalls),
        patch.object(gateway_history, "PresignedReads", InlineReads),
        patch.object(heap, "_malloc_trim", lambda: None),
    ):
        yield
