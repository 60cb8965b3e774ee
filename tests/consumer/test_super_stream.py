"""A super stream whose map could not be asked for when reading began."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from coldstream.consumer.items import BatchItems
from coldstream.consumer.super_stream import tell_of_map
from coldstream.errors import UnavailableError
from coldstream.manifest.shard_map import ShardMap
from tests.support.sharding import Sharding
from tests.support.world import run


@pytest.mark.parametrize("partitions", [0, 2, 3])
def test_the_map_is_asked_for_until_there_is_an_answer_and_told(
    partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[ShardMap | UnavailableError | None] = [UnavailableError("away")] * 3
    answers.append(Sharding(partitions).map if partitions else None)

    async def ask() -> ShardMap | None:
        answer = answers.pop(0)
        if isinstance(answer, UnavailableError):
            raise answer
        return answer

    async def read() -> None:
        async with asyncio.timeout(100):
            await tell_of_map(SimpleNamespace(ask=ask), BatchItems(("orders-0", "orders-1")))  # type: ignore[arg-type]

    run(read())
    assert answers == []
    told = {0: [], 2: ["all partitions"], 3: ["without orders-2"]}[partitions]
    assert len(caplog.messages) == len(told)
    assert all(text in message for text, message in zip(told, caplog.messages, strict=True))
