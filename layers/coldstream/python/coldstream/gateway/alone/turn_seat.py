"""`TurnSeat`: a single active consumer of this process, as the turns know it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coldstream.gateway.alone.turns import TurnName


@dataclass(slots=True, eq=False)
class TurnSeat:
    """A consumer's seat here. `is_active` is what it was last told.

    `activate` is called when its turn has come; `deactivate` when it is over: it is to stop at once, and to return once
    the client knows.
    """

    name: TurnName
    place: int | None
    number: int
    activate: Callable[[], None]
    deactivate: Callable[[], Awaitable[None]]
    is_active: bool = False
    is_gone: bool = False
    stopping: asyncio.Task[None] | None = None

    @property
    def is_stopping(self) -> bool:
        """Tell whether the client does not know yet that its turn is over."""
        return self.stopping is not None and not self.stopping.done()
