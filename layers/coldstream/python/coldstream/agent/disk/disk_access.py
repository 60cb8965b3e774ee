"""A stream's disk as the agent's tasks use it: each call in a thread, one at a time.

One task pins, one proves and one delivers, and `StreamDisk` is not made for threads: two looks at once would release by
what the other has already replaced. So every call waits for its turn. A task that has to act on what it has just read
holds the turn itself for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from coldstream.agent.disk.disk_log import DiskLog
from coldstream.agent.disk.stream_disk import StreamDisk
from coldstream.format.chunk import ChunkHeader
from coldstream.units import ChunkId

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class DiskAccess:
    """Turns at one stream's disk. Implements `Log` of `proof.broker`."""

    def __init__(self, disk: StreamDisk) -> None:
        self.disk = disk
        self.turn = asyncio.Lock()

    async def call(
        self, function: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Result:
        """Call a function that uses the disk."""
        async with self.turn:
            return await asyncio.to_thread(function, *arguments, **named)

    async def on_log(
        self,
        function: Callable[Concatenate[DiskLog, _Arguments], _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Call a function of the log."""
        # The log is read only when the turn has come: while this waits, the other tasks replace it.
        return await self.call(lambda: function(self.disk.log, *arguments, **named))

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        """Find a chunk on this disk."""
        found = await self.on_log(DiskLog.find, chunk_id)
        return None if found is None else found.header

    async def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        """Tell whether two chunks on this disk are of one log."""
        return await self.on_log(DiskLog.is_linked, earlier, later)

    async def user_chunks(self, turn: int) -> tuple[ChunkHeader, ChunkHeader] | None:
        """Return the first user chunk and another one, a different one in each turn; None if there is none."""
        first = await self.on_log(DiskLog.first_user_chunk)
        if first is None:
            return None
        # Another turn of the disk: by now all may be released, and then the first chunk stands for both.
        another = await self.on_log(DiskLog.some_user_chunk, turn)
        return first.header, (another or first).header
