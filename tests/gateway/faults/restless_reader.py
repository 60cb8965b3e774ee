"""A consumer of rstream's, in a thread of its own, which begins again after its last message if it loses its place.

    with RestlessReader("one", port, "orders") as reader:
        reader.allow(500)
        reader.wait(500)

It takes no more messages than it is allowed to. `offsets` and `numbers` are those of the messages that it was given;
messages begin with their number.
"""

from __future__ import annotations

import asyncio
import time

from rstream import Consumer, ConsumerOffsetSpecification, MessageContext, OffsetType
from rstream.utils import OnClosedErrorInfo

from tests.gateway.faults.restless import WAIT_S, RestlessClient
from tests.support.closing_loop import end_connections
from tests.support.epmd import HOST

_POLL_S = 0.02


class RestlessReader(RestlessClient):
    """The consumer. `sessions` counts how often it subscribed.

    It goes to another address if `port` is changed. Other clients have a list of them.
    """

    def __init__(self, name: str, port: int, stream: str) -> None:
        super().__init__(name, port, stream)
        self.offsets: list[int] = []
        self.numbers: list[int] = []
        self.sessions = 0
        self._allowed = 0

    def allow(self, messages: int) -> None:
        """Let it take so many messages, of all."""
        self._allowed = messages

    def wait(self, messages: int) -> None:
        """Wait until it has so many."""
        deadline = time.monotonic() + WAIT_S
        while len(self.numbers) < messages:
            assert time.monotonic() < deadline, f"{self.name} stands at {len(self.numbers)}: {self.endings}"
            time.sleep(_POLL_S)

    async def _session(self) -> None:
        reasons: list[str] = []

        def note(closed: OnClosedErrorInfo) -> None:
            reasons.append(closed.reason)

        async def take(message: bytes, context: MessageContext) -> None:
            while len(self.numbers) >= self._allowed and not reasons:  # noqa: ASYNC110  another thread allows it
                await asyncio.sleep(_POLL_S)
            if not reasons:  # else the next session is given it
                self.offsets.append(context.offset)
                self.numbers.append(int(message.partition(b":")[0]))

        spec = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        if self.offsets:
            spec = ConsumerOffsetSpecification(OffsetType.OFFSET, self.offsets[-1] + 1)
        consumer = Consumer(HOST, self.port, username="guest", password="guest", on_close_handler=note)
        try:
            await consumer.start()
            await consumer.subscribe(self._stream, take, offset_specification=spec, initial_credit=2)
            self.sessions += 1
            while not reasons and not self._is_over.is_set():  # noqa: ASYNC110  as above
                await asyncio.sleep(_POLL_S)
            self.endings += reasons
        finally:
            reasons.append("left")
            try:
                await consumer.close()
            finally:
                await end_connections()  # while something refers to them
