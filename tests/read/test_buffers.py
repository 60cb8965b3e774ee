"""Memory of ranges that is used again, and never while somebody looks at it."""

from __future__ import annotations

import threading
from random import Random

import pytest

from coldstream.read.buffers import Buffers

SIZE = 1 << 20


def filled_with(buffers: Buffers, byte: int, size_bytes: int = SIZE) -> memoryview:
    def read_into(room: memoryview) -> None:
        room[:] = bytes([byte]) * len(room)

    return buffers.fill(size_bytes, read_into)


def memory_of(view: memoryview) -> int:
    return id(view.obj)


def test_what_is_read_is_handed_out_read_only_and_as_bytes() -> None:
    view = filled_with(Buffers(SIZE), 7, 10)
    assert view == b"\x07" * 10
    assert view.readonly
    assert isinstance(view.obj, bytes)  # which the native module reads without a copy


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    buffers = Buffers(4 * SIZE)
    places = set()
    for size_bytes in (SIZE, SIZE - 1000, SIZE + 1000, SIZE):
        view = filled_with(buffers, 1, size_bytes)
        places.add(memory_of(view))
        del view
    assert len(places) == 1
    assert buffers.kept_bytes == SIZE * 5 // 4


def test_a_part_of_a_view_keeps_all_of_it_as_it_is() -> None:
    buffers = Buffers(4 * SIZE)
    part = filled_with(buffers, 1)[5:9]
    others = [filled_with(buffers, byte) for byte in (2, 3)]
    assert part == b"\x01" * 4
    assert len({memory_of(part), *map(memory_of, others)}) == 3


def test_a_buffer_that_is_taken_for_a_free_one_changes_nothing_that_was_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffers = Buffers(4 * SIZE)
    monkeypatch.setattr("coldstream.read.buffers._is_free", lambda buffer: True)
    first = filled_with(buffers, 1)
    second = filled_with(buffers, 2)
    assert (first[0], second[0]) == (1, 2)


def test_memory_of_another_size_is_not_used_for_a_range() -> None:
    buffers = Buffers(100 * SIZE)
    filled_with(buffers, 1, 16 * SIZE)
    assert len(filled_with(buffers, 2, SIZE).obj) < 2 * SIZE  # type: ignore[arg-type]  # of bytes


def test_no_more_is_remembered_than_was_allowed() -> None:
    buffers = Buffers(3 * SIZE)
    views = [filled_with(buffers, byte) for byte in range(4)]
    assert buffers.kept_bytes == 2 * SIZE * 5 // 4
    assert [view[0] for view in views] == [0, 1, 2, 3]


def test_a_failure_comes_out_and_its_buffer_is_forgotten() -> None:
    buffers = Buffers(4 * SIZE)

    def break_off(room: memoryview) -> None:
        room[:10] = b"0123456789"
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        buffers.fill(SIZE, break_off)
    assert filled_with(buffers, 1) == b"\x01" * SIZE
    assert caught.traceback[-1].frame.f_locals["room"][:10] == b"0123456789"


def test_threads_never_share_a_buffer() -> None:
    buffers = Buffers(4 * SIZE)
    wrong: list[int] = []

    def work(byte: int) -> None:
        random = Random(byte)
        held: list[memoryview] = []
        for _ in range(200):
            held.append(filled_with(buffers, byte, random.randrange(5000, 9000)))
            wrong.extend(view[0] for view in held if view[0] != byte or view[-1] != byte)
            if len(held) > random.randrange(6):
                del held[random.randrange(len(held))]

    threads = [threading.Thread(target=work, args=(byte,)) for byte in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
