"""Publishers with names that come and go between two servers, in random schedules: each message once, in order."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.frames.answers import SequenceAnswer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import Create, DeclarePublisher, QueryPublisherSequence
from coldstream.streams import DirectArchive
from tests.gateway.alone.test_publishing import stored
from tests.support.alone import RawClient, RunningAlone, confirmed, publish, running_alone

STREAM = "orders"
MESSAGES = 80


class NamedPublisher:
    """Publishes messages by their numbers, and goes on where the server says that it was."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self.name = name
        self.known: set[int] = set()
        self._dice = dice

    async def connect(self, alone: RunningAlone) -> None:
        """Publish some, from one connection, and take confirms until it is cut or they stop coming."""
        with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            async with alone.client() as client:
                code = await client.code(lambda number: DeclarePublisher(number, 1, self.name, STREAM))
                if code != Code.OK:
                    await asyncio.sleep(0.02)
                    return
                found = await client.ask(
                    lambda number: QueryPublisherSequence(number, self.name, STREAM), SequenceAnswer
                )
                if isinstance(found, SequenceAnswer):
                    assert found.sequence >= max(self.known, default=0)
                    self.known.update(range(1, found.sequence + 1))
                    self._send(client, found.sequence + 1)
                    await self._take_confirms(client)

    def _send(self, client: RawClient, begin: int) -> None:
        at = self._dice.choice([begin, max(1, begin - 5)])
        for _ in range(self._dice.randrange(1, 30)):
            end = min(at + self._dice.randrange(1, 8), MESSAGES + 1)
            if at < end:
                client.send(publish(1, *((number, f"{self.name} {number}".encode()) for number in range(at, end))))
            at = end

    async def _take_confirms(self, client: RawClient) -> None:
        within_s = self._dice.choice([0.0, 0.1, 0.5])
        while within_s:
            async with asyncio.timeout(within_s):
                body = await client.body()
            if key_of(body)[0] == Key.METADATA_UPDATE:
                return
            if key_of(body)[0] == Key.PUBLISH_CONFIRM:
                self.known.update(confirmed(body)[1])


@pytest.mark.parametrize("seed", range(3))
async def test_each_message_is_stored_once_and_in_order(seed: int) -> None:
    dice = random.Random(seed)
    archive = DirectArchive.in_memory()
    options = AloneOptions(creates_streams=True, poll_s=0.1, turns_every_s=0.1, takeover_pause_s=0.05)
    async with running_alone(archive, options=options) as one, running_alone(archive, options=options) as two:
        async with one.client() as client:
            assert await client.code(lambda number: Create(number, STREAM, {})) == Code.OK
        servers = [one, two]

        async def go_on(publisher: NamedPublisher) -> None:
            while len(publisher.known) < MESSAGES:
                if dice.random() < 0.4:
                    servers.reverse()
                await publisher.connect(servers[0])

        # Two of them share a name.
        await asyncio.gather(*(go_on(NamedPublisher(name, dice)) for name in ("x", "y", "x")))
    messages = [message.decode() for message in await stored(archive)]
    for name in ("x", "y"):
        mine = [message for message in messages if message.startswith(name)]
        assert mine == [f"{name} {number}" for number in range(1, MESSAGES + 1)]
