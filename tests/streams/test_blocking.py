"""The blocking faces: complete, for many threads, and never in the way of an end."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import coldstream
from coldstream.errors import StreamClosedError
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import BlockingDirectStream, BlockingStreamClient, DirectArchive, DirectStream, StreamClient
from coldstream.streams.blocking import BlockingKeyValues
from coldstream.streams.key_values import KeyValues
from coldstream.units import Offset
from tests.support.interposed_archive import InterposedArchive

FACES = [
    (StreamClient, BlockingStreamClient, {"open"}),
    (DirectStream, BlockingDirectStream, {"queue"}),
    (KeyValues, BlockingKeyValues, {"table", "call"}),
]
"""A class, its blocking face, and what of it is no part of a face: how it is made, and what is for the package."""

PATIENCE_S = 60


@pytest.fixture
def client() -> Iterator[BlockingStreamClient]:
    with BlockingStreamClient(DirectArchive(MemoryTable(), MemoryObjects(), Keys(""))) as client:
        client.create("orders")
        yield client


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers_static(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("asynchronous", "blocking", "inside"), FACES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_blocking_face_has_every_method_with_the_same_parameters(
    asynchronous: type, blocking: type, inside: set[str]
) -> None:
    ours, theirs = public(blocking), public(asynchronous)
    assert set(ours) - {"key_values"} == set(theirs) - inside
    for name, mine in ours.items():
        its = theirs[name]
        if isinstance(mine, property):
            assert isinstance(its, property), name
            mine, its = mine.fget, its.fget  # noqa: PLW2901  what they call
        assert callable(mine), name
        assert callable(its), name
        here, there = inspect.signature(mine), inspect.signature(its)
        assert here.parameters == there.parameters, name
        assert str(here.return_annotation) == _blocking(str(there.return_annotation)), name


def test_the_blocking_client_is_made_as_the_other_one_is_opened() -> None:
    made, opened = inspect.signature(BlockingStreamClient), inspect.signature(StreamClient.open)
    assert made.parameters == opened.parameters


def _blocking(annotation: str) -> str:
    annotation = annotation.replace("AsyncGenerator[", "Iterator[").replace(", None]", "]")
    return annotation.replace("DirectStream", "BlockingDirectStream")


def test_many_threads_use_one_client_and_one_stream(client: BlockingStreamClient) -> None:
    stream = client.open_stream("orders")

    def work(number: int) -> list[Offset | None]:
        client.key_values.put(f"k{number}", b"x")
        return [stream.append([b"%d" % number]) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(work, range(8)))
    assert sorted(at for some in offsets for at in some if at is not None) == list(range(160))
    assert all(some == sorted(some, key=lambda at: -1 if at is None else at) for some in offsets)


def test_who_follows_in_another_thread_is_let_go_by_a_close(client: BlockingStreamClient) -> None:
    stream = client.open_stream("orders")
    seen: list[Offset] = []
    first = threading.Event()

    def follow() -> None:
        for batch in stream.follow(Offset(0)):
            seen.append(batch.base_offset)
            first.set()

    reader = threading.Thread(target=follow)
    reader.start()
    stream.append([b"a"])
    assert first.wait(PATIENCE_S)
    client.close()
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    assert seen == [0]


def test_several_threads_may_close_a_client_while_others_append() -> None:
    for _ in range(5):
        client = BlockingStreamClient(DirectArchive(MemoryTable(), MemoryObjects(), Keys("")))
        client.create("orders")
        stream = client.open_stream("orders")
        outcomes: list[type[BaseException]] = []

        def append(stream: BlockingDirectStream = stream, outcomes: list[type[BaseException]] = outcomes) -> None:
            try:
                while True:
                    stream.append([b"a"])
            except BaseException as err:  # noqa: BLE001  whatever it is
                outcomes.append(type(err))

        threads = [threading.Thread(target=append) for _ in range(4)]
        threads += [threading.Thread(target=client.close) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(PATIENCE_S)
            assert not one.is_alive()
        assert outcomes == [StreamClosedError] * 4


def test_a_call_under_way_when_the_thread_stops_says_that_the_client_is_closed() -> None:
    world = InterposedArchive()
    client = BlockingStreamClient(world.archive)
    client.create("orders")
    stream = client.open_stream("orders")
    with world.objects.held("put_new") as put, ThreadPoolExecutor(1) as pool:
        appending = pool.submit(stream.append, [b"a"])
        asyncio.run(put.entered())
        client._thread.stop()
        with pytest.raises(StreamClosedError):
            appending.result(PATIENCE_S)
    with pytest.raises(StreamClosedError):
        stream.append([b"b"])
    client.close()


def test_an_iteration_that_is_left_ends_what_it_waited_for(client: BlockingStreamClient) -> None:
    stream = client.open_stream("orders")
    stream.append([b"a"])
    following = stream.follow(Offset(0))
    assert next(following).base_offset == 0
    following.close()  # type: ignore[attr-defined]  # it is a generator
    assert [info.name for info in client.list()] == ["orders"]


def _in_child(call: Callable[[], object], said: Any) -> None:
    try:
        call()
    except StreamClosedError as err:
        said.put(str(err))
    except BaseException as err:  # noqa: BLE001  whatever it is
        said.put(repr(err))
    else:
        said.put("nothing")


def test_a_forked_process_is_told_and_closes_nothing_of_its_parent(client: BlockingStreamClient) -> None:
    context = multiprocessing.get_context("fork")
    stream = client.open_stream("orders")
    stream.append([b"a"])
    with client._thread._lock:
        for call, expected in ((lambda: stream.append([b"b"]), "forked"), (client.close, "nothing")):
            said = context.Queue()
            child = context.Process(target=_in_child, args=(call, said))
            child.start()
            assert expected in said.get(timeout=PATIENCE_S)
            child.join(PATIENCE_S)
            assert child.exitcode == 0
    assert stream.append([b"c"]) == 1


@pytest.mark.server
@pytest.mark.parametrize(
    "left",
    [
        "pass",
        "following = stream.follow(Offset(0)); next(following)",
        "threading.Thread(target=lambda: list(stream.follow(Offset(0))), daemon=True).start()",
        "following = stream.follow(Offset(0)); next(following); atexit.register(following.close)",
        "atexit.register(client.close)",
    ],
)
def test_a_program_that_closes_nothing_ends(left: str) -> None:
    program = f"""
        import atexit, threading
        from coldstream.store.keys import Keys
        from coldstream.store.memory.objects import MemoryObjects
        from coldstream.store.memory.table import MemoryTable
        from coldstream.streams import BlockingStreamClient, DirectArchive
        from coldstream.units import Offset
        client = BlockingStreamClient(DirectArchive(MemoryTable(), MemoryObjects(), Keys("")))
        client.create("orders")
        stream = client.open_stream("orders")
        stream.append([b"a"])
        {left}
        print("done")
    """
    path = str(Path(coldstream.__path__[0]).parent)
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")
