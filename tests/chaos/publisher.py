"""A publisher that goes on whatever happens to the broker, and loses and doubles nothing.

It has a name, and its messages' numbers are their publishing ids: after a lost connection the broker is asked how far
it came, and what it takes twice it leaves out. A message is committed once the broker has confirmed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

from rstream import schema
from rstream.client import Client

from tests.chaos.messages import STREAM, message

NAME = "numbers"
PUBLISHER_ID = 1
MAX_UNCONFIRMED = 500
CONFIRM_TIMEOUT_S = 10.0
RETRY_S = 0.2


class Publisher:
    """Publishes about `per_s` messages a second until it is told to finish.

    `confirmed` is the number of the last message up to which the broker has confirmed all; `problem` what must not be.
    """

    def __init__(self, host: str, port: int, *, seed: int, per_s: int) -> None:
        self._address = host, port
        self._seed = seed
        self._per_s = per_s
        self._random = random.Random(seed)
        self._finishing = False
        self._open: set[int] = set()
        self._sent = 0
        self.confirmed = 0
        self.connections = 0
        self.problem: str | None = None

    def finish(self) -> None:
        """Send nothing new, and end when everything is confirmed."""
        self._finishing = True

    async def run(self) -> None:
        """Publish over one connection after the other."""
        while not (self._finishing and not self._open and self._sent == self.confirmed):
            client = Client(*self._address, frame_max=1 << 20, heartbeat=0, connection_closed_handler=lambda _: None)
            try:
                async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                    await self._begin(client)
                await self._publish(client)
            except Exception:  # noqa: BLE001  rstream raises a good many, and the broker is meant to go away
                await asyncio.sleep(RETRY_S)
            finally:
                await _close(client)

    async def _begin(self, client: Client) -> None:
        await client.start()
        await client.authenticate("/", "guest", "guest")
        await client.declare_publisher(STREAM, NAME, PUBLISHER_ID)
        stored = await client.query_publisher_sequence(STREAM, NAME)
        if stored < self.confirmed:
            self.problem = f"the broker confirmed {self.confirmed} messages, and knows of {stored} now"
        self._open.clear()
        self._sent = self.confirmed = stored
        self.connections += 1
        client.add_handler(schema.PublishConfirm, self._on_confirm)

    async def _publish(self, client: Client) -> None:
        while client.is_connection_alive():
            if self._finishing and not self._open:
                return
            if not self._finishing:
                pause_s = self._random.uniform(0.02, 0.25)
                count = max(1, round(self._per_s * pause_s))
                numbers = range(self._sent + 1, self._sent + 1 + count)
                self._open.update(numbers)
                self._sent = numbers[-1]
                messages = [schema.Message(number, None, message(self._seed, number)) for number in numbers]
                await client.send_publish_frame(schema.Publish(PUBLISHER_ID, messages))
                await asyncio.sleep(pause_s)
            async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                while self._is_behind() and client.is_connection_alive():  # noqa: ASYNC110  nobody tells of a lost one
                    await asyncio.sleep(0.02)

    def _is_behind(self) -> bool:
        return len(self._open) > (0 if self._finishing else MAX_UNCONFIRMED)

    def _on_confirm(self, frame: schema.PublishConfirm) -> None:
        self._open.difference_update(frame.publishing_ids)
        self.confirmed = min(self._open, default=self._sent + 1) - 1


async def _close(client: Client) -> None:
    connection = client._conn
    with contextlib.suppress(Exception):
        await client.close()
    if connection is not None:  # rstream leaves one that broke open
        with contextlib.suppress(Exception):
            await connection.close()
