"""A WAL in S3 by the real client, through a network that fails in each way: nothing acknowledged is lost.

And nothing that was refused appears. The delays between attempts are a hundredth of what they are.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from types import SimpleNamespace

import pytest

import coldstream.store.bucket
from coldstream.errors import UnavailableError, WalEndedError
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.reader import WalReader
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import Epoch
from tests.support.scripted_aws import Fate, ScriptedAws
from tests.support.wal_chunks import LIFE, chunk

KEYS = Keys("archive/")
OPTIONS = WalOptions(max_bytes=1, in_flight=4, attempts=2, max_delay_s=0.01)
STALLS = {Fate.STALLED_BEFORE, Fate.STALLED_AFTER}
ROUTE = Callable[[Callable[[str, str], Fate | None]], S3WalStore]


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = time.sleep
    hurried = SimpleNamespace(sleep=lambda seconds: sleep(seconds / 100))
    for module in ("botocore.endpoint", "coldstream.retry", "coldstream.streams.wal.seal"):
        monkeypatch.setattr(f"{module}.time", hurried)


@pytest.fixture
def direct(s3_objects: S3Objects) -> S3WalStore:
    """The bucket, without the network's faults."""
    return S3WalStore(s3_objects, KEYS)


@pytest.fixture
def route(request: pytest.FixtureRequest, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> Iterator[ROUTE]:
    """Give a store behind a network that does to each request what a function says."""
    with ScriptedAws(s3_objects._client.meta.endpoint_url, lambda method, path: None) as network:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", network.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL", network.url)
        if request.node.callspec.params.get("fate") in STALLS:
            monkeypatch.setattr(coldstream.store.bucket, "READ_TIMEOUT_S", 0.5)
        store = S3WalStore(S3Objects(s3_objects.bucket), KEYS)

        def through(fate_of: Callable[[str, str], Fate | None]) -> S3WalStore:
            network.fate_of = fate_of
            return store

        yield through


async def outcomes_of(writer: WalWriter, count: int) -> list[int | BaseException]:
    """Submit chunks, some at a time, and return what becomes of each."""
    futures: list[asyncio.Future[int]] = []
    for at in range(count):
        futures.append(writer.submit(chunk(at)))
        if at % 3 == 0:
            await asyncio.sleep(0.005)
    return await asyncio.gather(*futures, return_exceptions=True)


def judge(direct: S3WalStore, writer: WalWriter, outcomes: list[int | BaseException]) -> None:
    end = seal(direct, writer.place)
    found = WalReader(direct).entries(writer.place, end, LIFE, Epoch(1))
    readable = [entry.first_offset for _, entry in found]
    assert readable == sorted(set(readable))
    for offset, outcome in enumerate(outcomes):
        if isinstance(outcome, int):
            assert (outcome, offset) in [(sequence, entry.first_offset) for sequence, entry in found]
        elif isinstance(outcome, WalEndedError):
            assert offset not in readable
        else:
            assert writer.abandoned, outcome
    if writer.ended is not None:
        assert writer.ended == end


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.NOT_FOUND])
async def test_a_fault_now_and_then_costs_no_batch(
    fate: Fate, route: ROUTE, direct: S3WalStore, executor: Executor
) -> None:
    dice = random.Random(fate.name)
    store = route(lambda method, path: fate if method == "PUT" and dice.random() < 0.3 else None)
    writer = await WalWriter.begin(store, "me", OPTIONS, executor)
    outcomes = await outcomes_of(writer, 20)
    assert any(isinstance(outcome, int) for outcome in outcomes)
    await asyncio.to_thread(judge, direct, writer, outcomes)


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.NOT_FOUND])
async def test_a_batch_whose_put_never_gets_an_answer_has_a_fate_all_the_same(
    fate: Fate, route: ROUTE, direct: S3WalStore, executor: Executor
) -> None:
    fated = f"/{4:020}"
    seen: list[str] = []

    def fate_of(method: str, path: str) -> Fate | None:
        if method != "PUT" or fated not in path:
            return None
        seen.append(path)
        # All of the writer's attempts, by those of the client: then it seals its WAL, and that passes.
        return fate if len(seen) <= OPTIONS.attempts * coldstream.store.bucket.ATTEMPTS else None

    store = route(lambda method, path: None)
    writer = await WalWriter.begin(store, "me", OPTIONS, executor)
    route(fate_of)
    outcomes = await outcomes_of(writer, 8)
    assert seen
    await asyncio.to_thread(judge, direct, writer, outcomes)


@pytest.mark.parametrize(
    "fate",
    [Fate.REFUSED_500, Fate.REFUSED_503, Fate.STALLED_AFTER, Fate.RESET_BEFORE, Fate.RESET_AFTER, Fate.CUT],
)
async def test_who_seals_and_reads_meets_the_same_faults_and_finds_the_same(
    fate: Fate, route: ROUTE, direct: S3WalStore, executor: Executor
) -> None:
    writer = await WalWriter.begin(direct, "me", OPTIONS, executor)
    outcomes = await outcomes_of(writer, 10)
    assert outcomes == sorted(outcomes)  # type: ignore[type-var]
    dice = random.Random(fate.name)
    # Few: the client has a budget for attempts, and once that is spent, each fault ends a look.
    store = route(lambda method, path: fate if dice.random() < 0.1 else None)

    def look() -> list[int]:
        for _ in range(20):
            try:
                end = seal(store, writer.place)
                reader = WalReader(store)
                entries = reader.entries(writer.place, end, LIFE, Epoch(1))
                return [one.first_offset for one in reader.read_chunks(writer.place, entries)]
            except UnavailableError:
                continue
        raise AssertionError("never read")

    assert await asyncio.to_thread(look) == list(range(10))
    await asyncio.to_thread(judge, direct, writer, outcomes)


@pytest.mark.parametrize("fate", [Fate.NOT_FOUND])
async def test_an_object_that_is_listed_and_said_to_be_gone_is_not_taken_for_trimmed(
    fate: Fate, route: ROUTE, direct: S3WalStore, executor: Executor
) -> None:
    writer = await WalWriter.begin(direct, "me", OPTIONS, executor)
    await outcomes_of(writer, 10)
    end = await asyncio.to_thread(seal, direct, writer.place)
    fated = f"/{3:020}"
    store = route(lambda method, path: fate if method == "GET" and fated in path else None)
    reader = WalReader(store)
    with pytest.raises(UnavailableError, match="listed"):
        await asyncio.to_thread(reader.entries, writer.place, end, LIFE, Epoch(1))
    route(lambda method, path: None)
    found = await asyncio.to_thread(reader.entries, writer.place, end, LIFE, Epoch(1))
    assert [entry.first_offset for _, entry in found] == list(range(10))
