"""A stock client in a thread of its own, which begins again whenever it loses its place."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from tests.support.closing_loop import ClosingLoop

WAIT_S = 180.0
AWAY_S = 0.3


class RestlessClient(ABC):
    """It runs while its context is open. `endings` says why it had to begin again; it finds its way at `port`."""

    def __init__(self, name: str, port: int, stream: str) -> None:
        self.name = name
        self.port = port
        self.endings: list[str] = []
        self._stream = stream
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self._is_over.set()
        self._thread.join()

    @abstractmethod
    async def _session(self) -> None:
        """Do its work until it is over, or the place is lost."""

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=ClosingLoop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        while not self._is_over.is_set():
            try:
                await self._session()
            except Exception as err:  # noqa: BLE001  rstream has no tree of errors: whatever it is, a client tries again
                self.endings.append(repr(err))
            await asyncio.sleep(AWAY_S)
