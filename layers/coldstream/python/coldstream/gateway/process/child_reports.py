"""What a child does beside serving: it tells its parent every second what it has counted, and asks the archive.

The parent kills a child that says nothing, and with it the connections of its clients. So nothing that fails here ends
the reports: it is logged, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Self

from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.channel import REPORT_EVERY_S, ChildMessage, ChildReport
from coldstream.gateway.process.served import Served

ASK_ARCHIVE_EVERY_S = 10.0
COLDEST_ROWS = 20
MAX_PROBLEM_CHARACTERS = 1_000
"""How much of what the archive says is reported: a report must fit into a message."""

_PAGE_BYTES = resource.getpagesize()
_STATM_BYTES = 256
_LOG = logging.getLogger(__name__)


class ChildReports:
    """Both tasks, while its context is open."""

    def __init__(self, channel: socket.socket, served: Served, figures: GatewayFigures) -> None:
        self._channel = channel
        self._served = served
        self._figures = figures
        self._archive_problem: str | None = None
        self._is_cold_known = True
        self._tasks: list[asyncio.Task[NoReturn]] = []
        # Opened once: a process whose descriptors are all taken still has something to say.
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        turns = ((REPORT_EVERY_S, self._report), (ASK_ARCHIVE_EVERY_S, self._ask_archive))
        self._tasks = [asyncio.create_task(repeat(every_s, turn), name=turn.__name__) for every_s, turn in turns]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        os.close(self._statm)

    async def _report(self) -> None:
        coldest = self._coldest()
        resident_bytes = int(os.pread(self._statm, _STATM_BYTES, 0).split()[1]) * _PAGE_BYTES
        say(
            self._channel,
            ChildMessage(report=ChildReport(self._figures, resident_bytes, coldest, self._archive_problem)),
        )

    def _coldest(self) -> tuple[ColdRow, ...]:
        """Return the rows for people, without which everything else still counts."""
        try:
            found = self._served.coldest(COLDEST_ROWS)
        except Exception:  # noqa: BLE001  the parent must be told the rest
            if self._is_cold_known:
                _LOG.exception("the subscriptions to the archive cannot be shown")
            self._is_cold_known = False
            return ()
        self._is_cold_known = True
        return found

    async def _ask_archive(self) -> None:
        try:
            problem = await self._served.archive_problem()
        except Exception as err:  # noqa: BLE001  it is asked again
            problem = f"the question failed: {err!r}"
            if self._archive_problem is None:
                _LOG.exception("the archive cannot be asked")
        if problem is not None:
            problem = problem[:MAX_PROBLEM_CHARACTERS]
        before, self._archive_problem = self._archive_problem, problem
        if problem == before:
            return
        if problem is None:
            _LOG.info("the archive answers")
        else:
            _LOG.warning("the archive doesn't answer", extra={"reason": problem})


def say(channel: socket.socket, message: ChildMessage) -> None:
    """Tell the parent something, whole or not at all; never wait."""
    # A parent that reads none for so long that the buffer is full will end us, or has gone itself: the end of the
    # channel tells.
    with suppress(BlockingIOError, ConnectionError):
        channel.send(message.to_bytes())


async def repeat(every_s: float, turn: Callable[[], Awaitable[None]]) -> NoReturn:
    """Make turns for ever. What fails is logged, once until a turn is made again, and does not end them."""
    is_failing = False
    while True:
        try:
            await turn()
        except Exception:  # noqa: BLE001  see above
            if not is_failing:
                _LOG.exception("what a process tells of itself failed")
            is_failing = True
        else:
            is_failing = False
        await asyncio.sleep(every_s)
