"""An event loop that closes what rstream leaves open: a connection that the other side has ended, for one.

    with asyncio.Runner(loop_factory=ClosingLoop) as runner:
        runner.run(main())

What is left open is noticed when it is collected, and then whichever test runs is blamed.
"""

from __future__ import annotations

import asyncio
from typing import Any


class ClosingLoop(asyncio.SelectorEventLoop):
    """The loop. A connection is closed when its other side ends it, and all are by `end_connections`."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[asyncio.Transport] = []

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Make a connection."""
        transport, protocol = await super().create_connection(*arguments, **options)
        told = protocol.eof_received

        def ended() -> bool:
            told()
            return False  # streams say True, which leaves it half open

        protocol.eof_received = ended
        self._made.append(transport)
        return transport, protocol

    async def end_connections(self) -> None:
        """End all that are still open."""
        for transport in self._made:
            transport.abort()
        self._made.clear()
        await asyncio.sleep(0)  # a transport closes its socket in the next turn


async def end_connections() -> None:
    """End those of the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClosingLoop)
    await loop.end_connections()
