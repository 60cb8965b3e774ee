"""The subscription ids of a connection, and who receives the chunks of each.

The gateway has subscriptions of its own for questions, under ids that the client does not use. Until the broker has
confirmed the end of a subscription, its id is nobody else's: chunks that are still on their way would be taken for the
next one's. What the client sends for such an id waits that long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from coldstream.errors import UnavailableError
from coldstream.gateway.ports import Verdict
from coldstream.units import KIB

_MAX_WAITING_BYTES = 128 * KIB
"""Hundreds of requests. Who sends more for an id that is not free yet would be answered out of order: it has to go."""

_LAST_ID = 255


class ChunkReceiver(Protocol):
    """Whoever a subscription's chunks are for."""

    def deliver(self, version: int, head: memoryview) -> Verdict:
        """Decide about a chunk by its header."""
        ...

    def kept(self, version: int, frame: bytes) -> None:
        """Take a frame that was to be kept."""
        ...


class ReservedId:
    """An id that the gateway uses, or whose subscription ends: its chunks are dropped, and the client's frames wait."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, bytes]] = []
        self._waiting_bytes = 0

    def deliver(self, version: int, head: memoryview) -> Verdict:  # noqa: ARG002
        """Drop the chunk."""
        return Verdict.DROP

    def kept(self, version: int, frame: bytes) -> None:
        """Take nothing, as nothing is kept."""

    def hold(self, key: int, frame: bytes) -> bool:
        """Let a frame of the client wait; False if there are too many."""
        if self._waiting_bytes + len(frame) > _MAX_WAITING_BYTES:
            return False
        self._waiting_bytes += len(frame)
        self.waiting.append((key, frame))
        return True


class TransparentId:
    """A subscription that is the client's and the broker's alone."""

    def __init__(self, stream: str) -> None:
        self.stream = stream

    def deliver(self, version: int, head: memoryview) -> Verdict:  # noqa: ARG002
        """Pass the chunk on."""
        return Verdict.PASS

    def kept(self, version: int, frame: bytes) -> None:
        """Take nothing, as nothing is kept."""


class IdLender(ChunkReceiver, Protocol):
    """A subscription that the broker does not know yet."""

    def lend(self, question: ReservedId | None) -> None:
        """Let a question have the chunks that come for its id; None takes the id back."""
        ...


class SubscriptionIds:
    """Who receives the chunks of each id. `resume` is given the frames that waited for an id, once it is free.

    `lenders` are those whose ids serve for a question if the client uses all there are, and `lent` the questions that
    have one. Until such a question has ended, even if its lender is gone, the broker must hear nothing else of the id.
    """

    def __init__(self, resume: Callable[[int, bytes], None]) -> None:
        self.receivers: dict[int, ChunkReceiver] = {}
        self.lenders: dict[int, IdLender] = {}
        self.lent: dict[int, ReservedId] = {}
        self._lost: set[int] = set()
        self._given_back = asyncio.Event()
        self._resume = resume

    def spare(self) -> int | None:
        """Return an id that nobody uses, the greatest, as clients count from 0; None if there is none."""
        return next((number for number in range(_LAST_ID, -1, -1) if number not in self.receivers), None)

    def take(self, question: ReservedId) -> tuple[int, IdLender | None] | None:
        """Have the chunks of an id given to a question. Return the id, and whose it is; None if there is none."""
        number = self.spare()
        if number is not None:
            self.receivers[number] = question
            return number, None
        number = next((one for one in self.lenders if one not in self.lent), None)
        if number is None:
            return None
        lender = self.lenders[number]
        lender.lend(question)
        self.lent[number] = question
        return number, lender

    def give_back(self, number: int, lender: IdLender | None, question: ReservedId) -> None:
        """Give back the id of a question, whose subscription has ended."""
        if lender is not None:
            del self.lent[number]
            self._given_back.set()
        receiver = self.receivers.get(number)
        if receiver is question:
            self.release(number)
        elif lender is not None and receiver is lender:
            lender.lend(None)

    def lose(self, number: int) -> None:
        """Never use the id of a question again, as its subscription may not have ended."""
        self._lost.add(number)
        self._given_back.set()

    async def take_back(self, number: int) -> None:
        """Lend an id no longer, and wait until it is nobody else's. Raises UnavailableError if that will not be."""
        self.lenders.pop(number, None)
        while number in self.lent:
            if number in self._lost:
                raise UnavailableError(f"subscription id {number} was used for a question, which the broker ignores")
            self._given_back.clear()
            await self._given_back.wait()

    def release(self, number: int) -> None:
        """Free an id, and go on with what waited for it."""
        reserved = self.receivers.pop(number, None)
        if isinstance(reserved, ReservedId):
            for key, frame in reserved.waiting:
                self._resume(key, frame)
