"""Slices are sent whole or not at all, in whatever way the sending is broken off, repeated, or done twice at once."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from coldstream.errors import ConflictError, TruncatedError
from coldstream.ingest.multipart import PARTS_IN_FLIGHT
from coldstream.ingest.stage import stage
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from tests.support.segments import STREAM
from tests.support.sending import (
    KEY,
    PART_BYTES,
    KilledError,
    Process,
    interrupted,
    killed,
    leave,
    make,
    requests_of,
    send,
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.ingest.multipart.PART_BYTES", PART_BYTES)


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
    expected = {"HeadObject": 2, "PutObject": 1}
    if parts:
        expected = {"HeadObject": 2, "ListMultipartUploads": 1, "CreateMultipartUpload": 1}
        expected |= {"UploadPart": parts, "CompleteMultipartUpload": 1}
    assert objects.requests == expected
    there = objects.info(KEY)
    assert there is not None
    assert rolled.etag == there.etag


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
def test_an_upload_killed_at_any_request_is_continued(tmp_path: Path, size_bytes: int, when: str) -> None:
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
    attempts = 0
    while KEY not in objects.objects:
        attempts += 1
        with suppress(KilledError):
            send(slice_, killed(objects, 5))  # a HEAD, two listings or a creation, and a few parts
    assert attempts > 2
    assert objects.objects == {KEY: slice_.path.read_bytes()}
    assert (objects.requests["UploadPart"], objects.requests["CreateMultipartUpload"]) == (9, 1)


def test_parts_that_are_there_are_passed_over_while_others_are_being_sent(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 9 * PART_BYTES)
    whole = slice_.path.read_bytes()
    objects = MemoryObjects()
    leave(objects, *((number, whole[(number - 1) * PART_BYTES : number * PART_BYTES]) for number in (3, 4, 5, 6, 8)))
    # Slow: the parts after it are looked at meanwhile, and the file is at its end before the last has arrived.
    send(slice_, Process(objects, lambda _, __: time.sleep(0.005)))
    assert objects.objects == {KEY: whole}
    assert objects.requests["UploadPart"] == 5 + 4


def test_at_most_three_parts_are_in_flight(tmp_path: Path) -> None:
    process = Process(MemoryObjects(), lambda _, __: time.sleep(0.002))
    send(make(tmp_path, 9 * PART_BYTES), process)
    assert process.most_in_flight == PARTS_IN_FLIGHT == 3


def test_parts_are_paid_for_before_they_are_sent(tmp_path: Path) -> None:
    objects = MemoryObjects()
    paid: list[int] = []

    def pay(size_bytes: int) -> None:
        assert objects.requests["UploadPart"] <= len(paid)
        paid.append(size_bytes)

    send(make(tmp_path, 3 * PART_BYTES + 7), objects, pay)
    assert paid == [PART_BYTES, PART_BYTES, PART_BYTES, 7]


def test_a_part_is_read_only_when_all_before_it_but_two_have_arrived(tmp_path: Path) -> None:
    arrived: list[int] = []

    def slow(number: int, when: str) -> None:
        if when == "before":
            time.sleep(0.002)
        else:
            arrived.append(number)

    asked: list[int] = []

    def ask(size_bytes: int) -> None:
        parts = len(arrived) - 3  # after a HEAD, a listing and a creation
        assert parts >= len(asked) - (PARTS_IN_FLIGHT - 1)
        asked.append(size_bytes)

    send(make(tmp_path, 9 * PART_BYTES), Process(MemoryObjects(), slow), ask)
    assert len(asked) == 9


def test_an_upload_that_is_stopped_while_it_pays_leaves_its_parts_for_the_next(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("size_bytes", [PART_BYTES, 3 * PART_BYTES])
def test_a_file_that_is_truncated_meanwhile_completes_nothing(tmp_path: Path, size_bytes: int) -> None:
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
