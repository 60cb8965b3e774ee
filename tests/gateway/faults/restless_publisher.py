"""A publisher with a name, in a thread of its own, which goes on at the new leader whenever it loses the old one.

    with RestlessPublisher(port, "orders", first=1) as publisher:
        publisher.wait_confirmed(500)

The client is rstream's, its lower layer, as `tests.support.streams` has it. It looks for the leader, asks for the last
publishing id that the broker has, and sends from there on, as all clients do. Messages begin with their number, which
is their publishing id. `confirmed` are those of which the broker has said that they are stored.
"""

from __future__ import annotations

import asyncio
import time

from rstream import schema
from rstream.client import Client

from tests.gateway.faults.restless import WAIT_S, RestlessClient
from tests.support.closing_loop import end_connections
from tests.support.epmd import HOST

LOGIN_S = 5.0
FRAME = 10
IN_FLIGHT = 100
"""Messages."""
PAUSE_S = 0.03
"""Between two frames."""
_ID = 0


class LeaderLostError(Exception):
    """The publisher has to look for its leader again."""


class RestlessPublisher(RestlessClient):
    """The publisher. What it sent before `stop`, and is not confirmed, may be stored or not."""

    def __init__(self, port: int, stream: str, *, first: int, size_bytes: int = 200) -> None:
        super().__init__("publisher", port, stream)
        self.confirmed: set[int] = set()
        self._first = first
        self._size_bytes = size_bytes

    def wait_confirmed(self, more: int) -> None:
        """Wait until so many messages more are confirmed."""
        deadline = time.monotonic() + WAIT_S
        wanted = len(self.confirmed) + more
        while len(self.confirmed) < wanted:
            assert time.monotonic() < deadline, f"{len(self.confirmed)} of {wanted} are confirmed: {self.endings}"
            time.sleep(PAUSE_S)

    async def _session(self) -> None:
        locator = client = None
        try:
            locator = await self._connect(HOST, self.port)
            leader, _ = await locator.query_leader_and_replicas(self._stream)
            client = await self._connect(leader.host, leader.port)
            await self._publish(client)
        finally:
            for each in (locator, client):
                if each is not None:
                    await each.close()
            await end_connections()  # while something refers to them

    async def _connect(self, host: str, port: int) -> Client:
        client = Client(host, port, frame_max=1 << 20, heartbeat=0, connection_closed_handler=lambda _: None)
        try:
            # rstream would wait for ten seconds for the answer of who has gone away meanwhile.
            async with asyncio.timeout(LOGIN_S):
                await client.start()
                await client.authenticate("/", "guest", "guest")
        except BaseException:
            await client.close()
            raise
        return client

    async def _publish(self, client: Client) -> None:
        lost: list[str] = []
        client.add_handler(schema.PublishConfirm, lambda frame: self.confirmed.update(frame.publishing_ids))
        client.add_handler(schema.PublishError, lambda frame: lost.append(repr(frame.errors[0])))
        client.add_handler(schema.MetadataUpdate, lambda frame: lost.append(repr(frame.metadata_info)))
        await client.declare_publisher(self._stream, "restless", _ID)
        last = await client.query_publisher_sequence(self._stream, "restless")
        number = max(last + 1, self._first)
        while not self._is_over.is_set():
            if lost or not client.is_connection_alive():
                raise LeaderLostError(*lost)
            if number - 1 - max(self.confirmed, default=0) < IN_FLIGHT or not self.confirmed:
                messages = [schema.Message(one, None, self._message(one)) for one in range(number, number + FRAME)]
                await client.send_publish_frame(schema.Publish(_ID, messages))
                number += FRAME
            await asyncio.sleep(PAUSE_S)

    def _message(self, number: int) -> bytes:
        return (b"%d:" % number).ljust(self._size_bytes, b".")
