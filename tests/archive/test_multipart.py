"""Slices are sent whole or not at all, in whatever way the sending is broken off, repeated, or done twice at once."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

import pytest

from coldstream.archive.multipart import PARTS_IN_FLIGHT
from coldstream.archive.rolled import SegmentRolled
from coldstream.archive.slice import SegmentSlice
from coldstream.archive.stage import stage
from coldstream.errors import ConflictError, TruncatedError
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.store.keys import Keys
from coldstream.store.memory import MemoryObjects
from coldstream.units import Offset
from tests.support.segments import STREAM

PART_BYTES = 1000
KEY = Keys().staged(STREAM.incarnation, Offset(0), Offset(10))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.archive.multipart.PART_BYTES", PART_BYTES)


class KilledError(Exception):
    """The process ends here."""


class Process:
    """One process's way to the objects, with its requests in its own hands.

    `hook` is called with the number of each request, from 0, before it has its effect and after.
    """

    def __init__(self, objects: MemoryObjects, hook: Callable[[int, str], None] = lambda _, __: None) -> None:
        self.asked = self.in_flight = self.most_in_flight = 0
        self._objects = objects
        self._hook = hook
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._objects, name)
        return partial(self._call, there) if callable(there) else there

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            number, self.asked = self.asked, self.asked + 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self._hook(number, "before")
            answer = call(*args, **kwargs)
            self._hook(number, "after")
        finally:
            with self._lock:
                self.in_flight -= 1
        return answer


def killed(objects: MemoryObjects, at: int, when: str = "before") -> Process:
    """A process that ends at a request: that one fails, and all that come later."""

    def hook(number: int, moment: str) -> None:
        if number > at or (number, moment) == (at, when):
            raise KilledError

    return Process(objects, hook)


def interrupted(objects: MemoryObjects, at: int, when: str, by: Callable[[], object]) -> Process:
    """A process at one of whose requests something else happens."""

    def hook(number: int, moment: str) -> None:
        if (number, moment) == (at, when):
            by()

    return Process(objects, hook)


def make(directory: Path, size_bytes: int, *, seed: int = 1) -> SegmentSlice:
    """Make a slice that is staged as so many bytes."""
    path = directory / f"{seed:020}.segment"
    path.write_bytes(SEGMENT_HEADER + random.Random(seed).randbytes(size_bytes - 8))
    return SegmentSlice(path, Offset(0), Offset(10), 8, size_bytes)


def send(
    slice_: SegmentSlice, objects: MemoryObjects | Process, on_bytes: Callable[[int], None] = lambda _: None
) -> SegmentRolled:
    return stage(slice_, STREAM, objects, Keys(), on_bytes=on_bytes)


def requests_of(slice_: SegmentSlice) -> int:
    process = Process(MemoryObjects())
    send(slice_, process)
    return process.asked


@pytest.mark.parametrize(
    ("size_bytes", "parts"),
    [(PART_BYTES - 1, 0), (PART_BYTES, 0), (PART_BYTES + 1, 2), (2 * PART_BYTES, 2), (2 * PART_BYTES + 1, 3)],
)
def test_what_fits_in_a_part_is_one_put_and_the_rest_an_upload_in_parts(
    tmp_path: Path, size_bytes: int, parts: int
) -> None:
    slice_ = make(tmp_path, size_bytes)
    objects = MemoryObjects()
    rolled = send(slice_, objects)
    assert objects.objects == {KEY: slice_.path.read_bytes()}
    assert (rolled.staged_key, rolled.size_bytes) == (KEY, size_bytes)
    expected = {"HeadObject": 1, "PutObject": 1}
    if parts:
        expected = {"HeadObject": 1, "ListMultipartUploads": 1, "CreateMultipartUpload": 1}
        expected |= {"UploadPart": parts, "CompleteMultipartUpload": 1}
    assert objects.requests == expected


def test_a_slice_that_is_there_is_not_sent(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 5 * PART_BYTES)
    objects = MemoryObjects()
    first = send(slice_, objects)
    objects.requests.clear()
    slice_.path.unlink()
    told: list[int] = []
    assert send(slice_, objects, told.append) == first
    assert objects.requests == {"HeadObject": 1}
    assert told == []


def test_the_time_borders_of_a_slice_are_announced(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 100)
    assert stage(slice_, STREAM, MemoryObjects(), Keys(), cut_every_ms=30_000).cut_every_ms == 30_000
    assert stage(slice_, STREAM, MemoryObjects(), Keys()).cut_every_ms is None


@pytest.mark.parametrize("size_bytes", [500, 3500])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_request_the_next_try_goes_on_where_it_ended(tmp_path: Path, size_bytes: int, when: str) -> None:
    slice_ = make(tmp_path, size_bytes)
    for at in range(requests_of(slice_)):
        objects = MemoryObjects()
        with pytest.raises(KilledError):
            send(slice_, killed(objects, at, when))
        arrived = sum(len(objects.parts(KEY, upload_id)) for upload_id in objects.uploads(KEY))
        wanted = 0 if KEY in objects.objects or size_bytes <= PART_BYTES else 4 - arrived
        objects.requests.clear()
        send(slice_, objects)
        assert objects.objects == {KEY: slice_.path.read_bytes()}
        assert objects.uploads(KEY) == ()
        assert objects.requests["UploadPart"] == wanted


def test_a_process_that_is_killed_again_and_again_ends_with_the_whole_and_sends_no_part_twice(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 8 * PART_BYTES + 5)
    objects = MemoryObjects()
    lives = 0
    while KEY not in objects.objects:
        lives += 1
        with suppress(KilledError):
            send(slice_, killed(objects, 5))  # a HEAD, two listings or a creation, and a few parts
    assert lives > 2
    assert objects.objects == {KEY: slice_.path.read_bytes()}
    assert (objects.requests["UploadPart"], objects.requests["CreateMultipartUpload"]) == (9, 1)


def test_at_most_two_parts_are_in_flight(tmp_path: Path) -> None:
    process = Process(MemoryObjects(), lambda _, __: time.sleep(0.002))
    send(make(tmp_path, 9 * PART_BYTES), process)
    assert process.most_in_flight == PARTS_IN_FLIGHT == 2


def test_parts_are_paid_for_before_they_are_sent(tmp_path: Path) -> None:
    objects = MemoryObjects()
    paid: list[int] = []

    def pay(size_bytes: int) -> None:
        assert objects.requests["UploadPart"] <= len(paid)
        paid.append(size_bytes)

    send(make(tmp_path, 3 * PART_BYTES + 7), objects, pay)
    assert paid == [PART_BYTES, PART_BYTES, PART_BYTES, 7]


def test_who_is_stopped_while_paying_leaves_what_was_sent_for_the_next_try(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 4 * PART_BYTES)
    objects = MemoryObjects()
    paid: list[int] = []

    def pay(size_bytes: int) -> None:
        if len(paid) == 3:
            raise KilledError
        paid.append(size_bytes)

    with pytest.raises(KilledError):
        send(slice_, objects, pay)
    paid.clear()
    send(slice_, objects, paid.append)
    assert paid == [PART_BYTES]
    assert objects.objects == {KEY: slice_.path.read_bytes()}


@pytest.mark.parametrize("when", ["before", "after"])
def test_another_that_sends_the_same_meanwhile_does_no_harm(tmp_path: Path, when: str) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    for at in range(requests_of(slice_)):
        objects = MemoryObjects()
        process = interrupted(objects, at, when, partial(send, slice_, objects))
        assert send(slice_, process).size_bytes == 3 * PART_BYTES
        assert objects.objects == {KEY: slice_.path.read_bytes()}
        assert objects.uploads(KEY) == ()


@pytest.mark.parametrize("when", ["before", "after"])
def test_another_that_breaks_off_meanwhile_does_no_harm(tmp_path: Path, when: str) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    requests = requests_of(slice_)
    for at, other_at in product(range(requests), range(requests)):
        objects = MemoryObjects()

        def break_off(objects: MemoryObjects = objects, other_at: int = other_at) -> None:
            with suppress(KilledError):
                send(slice_, killed(objects, other_at))

        assert send(slice_, interrupted(objects, at, when, break_off)).size_bytes == 3 * PART_BYTES
        assert objects.objects == {KEY: slice_.path.read_bytes()}


def test_replicas_of_other_bytes_never_mix(tmp_path: Path) -> None:
    good, damaged = make(tmp_path, 3 * PART_BYTES), make(tmp_path, 3 * PART_BYTES, seed=2)
    either = {good.path.read_bytes(), damaged.path.read_bytes()}
    requests = requests_of(good)
    winners, conflicts = set(), 0
    for at, other_at in product(range(requests), range(requests + 2)):
        objects = MemoryObjects()

        def meddle(objects: MemoryObjects = objects, other_at: int = other_at) -> None:
            with suppress(KilledError):
                send(damaged, killed(objects, other_at))

        try:
            send(good, interrupted(objects, at, "before", meddle))
        except ConflictError as err:
            conflicts += err.retryable
            assert KEY not in objects.objects
            send(good, objects)
        assert objects.objects[KEY] in either
        winners.add(objects.objects[KEY])
    assert winners == either
    assert conflicts > 0


def test_an_upload_that_another_completed_and_that_is_archived_since_can_be_tried_again(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    objects = MemoryObjects()

    def archive() -> None:
        send(slice_, objects)
        objects.delete(KEY)

    with pytest.raises(ConflictError) as caught:
        send(slice_, interrupted(objects, 4, "before", archive))
    assert caught.value.retryable
    send(slice_, objects)
    assert objects.objects == {KEY: slice_.path.read_bytes()}


def leave(objects: MemoryObjects, *parts: tuple[int, bytes], key: str = KEY) -> str:
    """Leave an unfinished upload."""
    upload_id = objects.create_upload(key)
    for number, data in parts:
        objects.put_part(key, upload_id, number, data, crc32=crc32(data))
    return upload_id


def test_a_part_of_other_bytes_is_sent_over(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    data = slice_.path.read_bytes()
    objects = MemoryObjects()
    leave(objects, (1, data[:PART_BYTES]), (2, bytes(PART_BYTES)))
    objects.requests.clear()
    send(slice_, objects)
    assert objects.objects == {KEY: data}
    assert (objects.requests["UploadPart"], objects.requests["CreateMultipartUpload"]) == (2, 0)


@pytest.mark.parametrize(
    "parts",
    [
        [(1, b"x" * (PART_BYTES - 1))],
        [(1, b"x" * (2 * PART_BYTES))],
        [(3, b"x" * PART_BYTES)],
        [(4, b"x")],
        [(9, b"x" * PART_BYTES)],
    ],
)
def test_an_upload_whose_parts_have_other_sizes_is_aborted_once_ours_is_complete(
    tmp_path: Path, parts: list[tuple[int, bytes]]
) -> None:
    slice_ = make(tmp_path, 2 * PART_BYTES + 500)
    objects = MemoryObjects()
    left = leave(objects, *parts)
    with pytest.raises(KilledError):
        send(slice_, killed(objects, 5))
    assert left in objects.uploads(KEY)
    send(slice_, objects)
    assert objects.objects == {KEY: slice_.path.read_bytes()}
    assert objects.uploads(KEY) == ()


def test_of_several_uploads_the_one_that_came_farthest_is_gone_on_with(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    data = slice_.path.read_bytes()
    objects = MemoryObjects()
    leave(objects)
    leave(objects, (1, data[:PART_BYTES]), (3, data[2 * PART_BYTES :]))
    leave(objects, (2, data[PART_BYTES : 2 * PART_BYTES]))
    objects.requests.clear()
    send(slice_, objects)
    assert objects.requests["UploadPart"] == 1
    assert objects.objects == {KEY: data}
    assert objects.uploads(KEY) == ()


def test_uploads_to_keys_that_begin_alike_are_left_alone(tmp_path: Path) -> None:
    objects = MemoryObjects()
    longer = leave(objects, (1, bytes(PART_BYTES)), key=KEY + ".json")
    send(make(tmp_path, 2 * PART_BYTES), objects)
    assert objects.uploads(KEY + ".json") == (longer,)


@pytest.mark.parametrize("size_bytes", [PART_BYTES, 3 * PART_BYTES])
def test_of_a_file_that_is_truncated_meanwhile_nothing_is_completed(tmp_path: Path, size_bytes: int) -> None:
    slice_ = make(tmp_path, size_bytes)
    os.truncate(slice_.path, size_bytes - 1)
    objects = MemoryObjects()
    with pytest.raises(TruncatedError):
        send(slice_, objects)
    assert objects.objects == {}


def test_a_file_that_vanishes_while_it_is_read_is_sent_to_its_end(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    data = slice_.path.read_bytes()
    objects = MemoryObjects()
    send(slice_, objects, lambda _: slice_.path.unlink(missing_ok=True))
    assert objects.objects == {KEY: data}
