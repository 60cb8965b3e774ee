"""What a name means, and answers that many share."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.history.bounds import NAMES_KEPT_S, KeptAnswers, KnownStream, find_stream
from coldstream.gateway.history.port import StreamBounds
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.removing import delete, remove_prefix

BOUNDS = StreamBounds(STREAM.incarnation, Offset(10), Offset(20))


def find(archive: ChunkArchive, known: KnownStream | None = None, now: float = 0.0) -> KnownStream | None:
    return find_stream(archive.table, STREAM.vhost, STREAM.name, known, now)


def test_a_known_stream_is_not_looked_up_by_its_name_for_a_while() -> None:
    archive = ChunkArchive()
    assert find(archive) is None
    archive.add(10, steady(5, 1, 2))
    known = find(archive)
    assert known == KnownStream(STREAM, BOUNDS, 0.0)
    assert find(archive, known, NAMES_KEPT_S - 1) == known
    assert find(archive, known, NAMES_KEPT_S + 1) == KnownStream(STREAM, BOUNDS, NAMES_KEPT_S + 1)


def test_a_deleted_stream_has_no_bounds_even_if_it_is_known() -> None:
    archive = ChunkArchive()
    archive.add(10, steady(5, 1))
    known = find(archive)
    delete(archive.table, STREAM.incarnation)
    assert find(archive, known) is None


def test_a_newer_incarnation_is_found_in_time_and_at_once_if_the_one_before_is_deleted() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1))
    known = find(archive)
    again = ChunkArchive(StreamId("/", "orders", Incarnation("__orders_1763700000000000001")))
    again.table = archive.table
    again.add(0, steady(3, 1))
    for now, is_deleted in ((NAMES_KEPT_S + 1, False), (1.0, True)):
        if is_deleted:
            delete(archive.table, STREAM.incarnation)
        found = find(archive, known, now)
        assert found is not None
        assert found.stream == again.stream


def test_a_stream_that_lost_all_entries_has_bounds_without_offsets() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1))
    remove_prefix(archive.table, STREAM.incarnation, 5)
    found = find(archive)
    assert found is not None
    assert found.bounds == StreamBounds(STREAM.incarnation, Offset(5), Offset(5))


def test_one_question_answers_all_who_ask_meanwhile() -> None:
    async def scenario() -> None:
        asked: list[str] = []
        go = asyncio.Event()

        async def ask(key: str) -> int:
            asked.append(key)
            await go.wait()
            return len(asked)

        answers = KeptAnswers(ask, kept_s=60)
        waits = [asyncio.ensure_future(answers.get("a")) for _ in range(100)]
        await asyncio.sleep(0)
        waits[0].cancel()
        go.set()
        assert await asyncio.gather(*waits[1:]) == [1] * 99
        assert await answers.get("a") == 1
        assert asked == ["a"]
        assert await answers.get("a", fresh=True) == 2

    asyncio.run(scenario())


def test_fresh_means_a_question_that_began_after_it_was_asked_for() -> None:
    async def scenario() -> None:
        began: list[asyncio.Event] = []

        async def ask(_: str) -> int:
            began.append(asyncio.Event())
            number = len(began)
            await began[-1].wait()
            return number

        answers = KeptAnswers(ask, kept_s=60)
        first = asyncio.ensure_future(answers.get("a"))
        await asyncio.sleep(0)
        fresh = [asyncio.ensure_future(answers.get("a", fresh=True)) for _ in range(3)]
        await asyncio.sleep(0)
        began[0].set()
        assert await first == 1
        while len(began) < 2:  # noqa: ASYNC110  the question has no event of its own
            await asyncio.sleep(0)
        began[1].set()
        assert await asyncio.gather(*fresh) == [2, 2, 2]
        assert len(began) == 2

    asyncio.run(scenario())


def test_an_error_is_raised_to_all_who_wait_and_not_kept() -> None:
    async def scenario() -> None:
        errors = [UnavailableError("away")]

        async def ask(_: str) -> int:
            await asyncio.sleep(0)
            if errors:
                raise errors.pop()
            return 7

        answers = KeptAnswers(ask, kept_s=60)
        waits = [asyncio.ensure_future(answers.get("a")) for _ in range(3)]
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(one) for one in results] == [UnavailableError] * 3
        assert await answers.get("a") == 7

    asyncio.run(scenario())


def test_no_more_answers_are_kept_than_it_is_told() -> None:
    async def scenario() -> None:
        asked: list[int] = []

        async def ask(key: int) -> int:
            asked.append(key)
            return key

        answers = KeptAnswers(ask, kept_s=60, most=2)
        for key in (1, 2, 3, 3, 1):
            assert await answers.get(key) == key
        assert asked == [1, 2, 3, 1]

    asyncio.run(scenario())


def test_close_releases_whoever_waits() -> None:
    async def scenario() -> None:
        async def ask(_: str) -> int:
            await asyncio.sleep(3600)
            return 1

        answers = KeptAnswers(ask, kept_s=60)
        waiting = asyncio.ensure_future(answers.get("a"))
        await asyncio.sleep(0)
        answers.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())
