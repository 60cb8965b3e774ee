"""A gateway in a process of its own, before a broker in another one, with an archive in memory of the same chunks.

    python -m tests.gateway.faults.gateway_process BROKER_PORT CHUNKS

Says its port, and then answers each line with what it holds: memory, files, tasks and connections.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Self

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.live.delivered import chunk_of
from tests.gateway.faults.abused import STREAM, open_files, resident_bytes, write
from tests.gateway.faults.model_log import ModelLog
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

    def __init__(self, broker_port: int, chunks: int) -> None:
        self._command = [sys.executable, "-m", "tests.gateway.faults.gateway_process", str(broker_port), str(chunks)]
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
        """Ask what it holds."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"?\n")
        return Held(**json.loads(await self._line()))

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        async with asyncio.timeout(STOP_S):
            return await self._process.stdout.readline()


async def main(broker_port: int, chunks: int) -> None:
    """Run until the standard input ends."""
    history, figures, log = MemoryHistory(), GatewayFigures(), ModelLog()
    write(log, chunks)
    history.put("/", STREAM, [chunk_of(one.delivered, source=STREAM) for one in log.chunks])
    gateway = await open_gateway(broker_port, history, figures)
    print(gateway.port, flush=True)  # noqa: T201  that is what it is for
    while await asyncio.to_thread(sys.stdin.readline):
        tasks = len(asyncio.all_tasks())
        held = (resident_bytes(), open_files(), tasks, figures.connections, figures.cold_subscriptions)
        print(json.dumps(dict(zip(Held.__dataclass_fields__, held, strict=True))), flush=True)  # noqa: T201
    await gateway.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
