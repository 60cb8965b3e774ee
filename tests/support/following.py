"""A follower that runs in a world, and what it has given."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

from coldstream.consumer.batch import BatchItem, ReachedOffset
from coldstream.consumer.follower import StreamFollower
from coldstream.consumer.items import BatchItems
from coldstream.errors import ColdstreamError
from coldstream.manifest.spec import FIRST, OffsetSpec
from tests.support.world import STREAM, FakeArchive, FakeBroker, World, run

Work = Callable[[World], Coroutine[None, None, None]]


def in_a_world(work: Work) -> Callable[[], None]:
    """Make a test of a coroutine that takes a world."""

    def test() -> None:
        random.seed(1)
        run(work(World(random.Random(1))))

    test.__name__ = work.__name__
    return test


def chunks(world: World, number: int) -> None:
    """Publish chunks of three messages."""
    for _ in range(number):
        world.publish(3)


class Following:
    """A follower that runs, and what it has given so far."""

    def __init__(self, world: World, start: OffsetSpec = FIRST, **options: object) -> None:
        self.world = world
        self.broker = FakeBroker(world)
        self.items = BatchItems([STREAM])
        self.given: list[tuple[int, bytes]] = []
        follower = StreamFollower(
            STREAM, start, broker=self.broker, archive=FakeArchive(world), give=self.give, **options
        )
        self.task = asyncio.create_task(follower.run())

    async def give(self, item: BatchItem) -> None:
        if isinstance(item, ReachedOffset):
            return
        if self.world.rng.random() < 0.2:
            await asyncio.sleep(self.world.rng.choice([0, 0.01, 1, 5]))
        self.items.load(item)
        self.given.extend((message.offset, message.raw) for message in self.items.messages)

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.given]

    async def settled(self, next_offset: int) -> None:
        """Wait until the last message has been given, or the follower has failed."""
        for _ in range(5000):
            if self.task.done() or (self.offsets and self.offsets[-1] >= next_offset - 1):
                return
            await asyncio.sleep(1)

    async def stop(self) -> ColdstreamError | None:
        self.task.cancel()
        try:
            await self.task
        except asyncio.CancelledError:
            return None
        except ColdstreamError as err:
            return err
