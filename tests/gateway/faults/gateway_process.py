"""A gateway in a process of its own, whose archive is a file of chunks.

    python -m tests.gateway.faults.gateway_process BROKER_PORT FILE

Says its port, and then reads the file again for each line, and answers with what it holds: memory, files, tasks and
connections.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.memory import MemoryHistory
from tests.gateway.faults.abused import STREAM, open_files, resident_bytes
from tests.gateway.faults.opened import open_gateway

STOP_S = 20


@dataclass(frozen=True)
class Held:
    """What the process holds."""

    resident_bytes: int
    files: int
    tasks: int
    connections: int
    cold_subscriptions: int


class GatewayProcess:
    """The process, as a context manager."""

    def __init__(self, broker_port: int, archive: Path) -> None:
        self._command = [sys.executable, "-m", "tests.gateway.faults.gateway_process", str(broker_port), str(archive)]
        self.port = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.port = int(await self._line())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    async def held(self) -> Held:
        """Have it read its archive again, and ask what it holds."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"?\n")
        return Held(**json.loads(await self._line()))

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        async with asyncio.timeout(STOP_S):
            return await self._process.stdout.readline()


def _chunks(file: Path) -> list[Chunk]:
    return list(iter_chunks(file.read_bytes(), source=STREAM))


async def main(broker_port: int, file: Path) -> None:
    """Run until the standard input ends."""
    history, figures = MemoryHistory(), GatewayFigures()
    archive = history.put("/", STREAM, _chunks(file))
    gateway = await open_gateway(broker_port, history, figures)
    print(gateway.port, flush=True)  # noqa: T201  that is what it is for
    while await asyncio.to_thread(sys.stdin.readline):
        archive.chunks = _chunks(file)
        tasks = len(asyncio.all_tasks())
        held = (resident_bytes(), open_files(), tasks, figures.connections, figures.cold_subscriptions)
        print(json.dumps(dict(zip(Held.__dataclass_fields__, held, strict=True))), flush=True)  # noqa: T201
    await gateway.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
