"""Values by key, and answers that never come."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import InvalidInputError, OutcomeUnknownError
from coldstream.manifest.state_item import MAX_STATE_BYTES
from tests.support.interposed_archive import InterposedArchive


@pytest.fixture
def world() -> InterposedArchive:
    return InterposedArchive()


class Lossy:
    """Has the first write of a method happen, and its answer lost; then `then` happens before anybody looks."""

    def __init__(self, world: InterposedArchive, name: str, then: tuple[str, bytes] | None = None) -> None:
        self.calls = 0
        real = getattr(world.table.target, name)

        def call(*items: object) -> None:
            self.calls += 1
            real(*items)
            if self.calls == 1:
                if then is not None:
                    key, value = then
                    asyncio.run(_put(world, key, value))
                raise OutcomeUnknownError("no answer came")

        setattr(world.table, name, call)
        self._remove = lambda: delattr(world.table, name)

    def stop(self) -> None:
        self._remove()


async def _put(world: InterposedArchive, key: str, value: bytes) -> None:
    async with await world.open() as client:
        await client.key_values.put(key, value)


def test_values_are_put_replaced_and_deleted(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as one, await world.open() as other:
            here, there = one.key_values, other.key_values
            assert await here.get("k") is None
            assert await here.put_if_absent("k", b"1") == b"1"
            assert await there.put_if_absent("k", b"2") == b"1"
            await there.put("k", b"3")
            assert await here.get("k") == b"3"
            assert [await here.delete("k"), await there.delete("k")] == [True, False]
            assert await there.put_if_absent("k", b"4") == b"4"
            await here.put("empty", b"")
            assert await here.get("empty") == b""

    asyncio.run(run())


def test_of_many_who_put_a_key_if_it_is_absent_one_does_and_all_learn_what(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            puts = (client.key_values.put_if_absent("k", b"%d" % n) for n in range(20))
            values = set(await asyncio.gather(*puts))
            assert values == {await client.key_values.get("k")}

    asyncio.run(run())


def test_of_many_who_put_a_key_all_do(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await asyncio.gather(*(client.key_values.put("k", b"%d" % n) for n in range(6)))
            assert await client.key_values.get("k") in {b"%d" % n for n in range(6)}

    asyncio.run(run())


def test_the_largest_value_and_key_are_taken_and_larger_ones_are_not(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            key, value = "ü" * 512, b"x" * MAX_STATE_BYTES
            await client.key_values.put(key, value)
            assert await client.key_values.get(key) == value
            for wrong_key, wrong_value in ((key + "x", b""), ("k", value + b"x"), ("", b""), ("a\nb", b"")):
                with pytest.raises(InvalidInputError):
                    await client.key_values.put(wrong_key, wrong_value)
                with pytest.raises(InvalidInputError):
                    await client.key_values.put_if_absent(wrong_key, wrong_value)

    asyncio.run(run())


def test_a_put_whose_answer_is_lost_is_not_sent_again(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            lossy = Lossy(world, "put_state")
            await client.key_values.put("k", b"1")
            assert await client.key_values.put_if_absent("k", b"2") == b"1"
            assert lossy.calls == 2
            lossy.stop()
            assert await client.key_values.get("k") == b"1"

    asyncio.run(run())


def test_a_delete_whose_answer_is_lost_does_not_delete_what_is_put_after_it(world: InterposedArchive) -> None:
    async def run() -> None:
        async with await world.open() as client:
            await client.key_values.put("k", b"old")
            await client.key_values.put("k", b"older")
            lossy = Lossy(world, "delete_state", then=("k", b"new"))
            assert await client.key_values.delete("k")
            lossy.stop()
            assert await client.key_values.get("k") == b"new"

    asyncio.run(run())
