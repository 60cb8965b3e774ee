"""Between the followers of a sharded stream and the consumer's queue: in which order their batches come out.

A gate takes what each follower gives, and returns to it once that is in the queue. The queue is first in, first out, so
what a gate has put there is given out before all that it puts there later.
"""

from __future__ import annotations

from typing import Protocol

from coldstream.consumer.batch import BatchItem, Give
from coldstream.manifest.shard_map import ShardMap
from coldstream.units import Offset


class Gate(Protocol):
    """Puts batches into the queue, in an order of its own. Items have to name their partition."""

    async def give(self, item: BatchItem) -> None:
        """Put an item into the queue, once its turn has come."""
        ...

    async def ready(self, number: int, offset: Offset) -> None:
        """Wait until a partition may be read at an offset, so that it fetches nothing before."""
        ...

    def add(self, number: int, offset: Offset) -> None:
        """Expect items of a partition, from an offset on if that is known, else from 0."""
        ...

    def finish(self, number: int) -> None:
        """Expect no more items of a partition: nothing of it is left to read."""
        ...

    def drop(self, number: int) -> None:
        """Forget a partition whose follower was stopped: another consumer reads on."""
        ...

    def use(self, found: ShardMap) -> None:
        """Go on with a later revision of the map."""
        ...

    def away(self, number: int) -> None:
        """Know that a partition waits for its broker, and may give nothing for days."""
        ...

    async def run(self) -> None:
        """Do what the gate has to do by itself, if anything."""
        ...


class ArrivalGate:
    """Puts everything into the queue as it comes. Implements `Gate`."""

    def __init__(self, put: Give) -> None:
        self._put = put

    async def give(self, item: BatchItem) -> None:
        """Put an item into the queue."""
        await self._put(item)

    async def ready(self, number: int, offset: Offset) -> None:
        """Return at once."""

    def add(self, number: int, offset: Offset) -> None:
        """Do nothing."""

    def finish(self, number: int) -> None:
        """Do nothing."""

    def drop(self, number: int) -> None:
        """Do nothing."""

    def use(self, found: ShardMap) -> None:
        """Do nothing."""

    def away(self, number: int) -> None:
        """Do nothing."""

    async def run(self) -> None:
        """Return at once."""
