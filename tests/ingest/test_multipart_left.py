"""What an earlier try, another version or another agent left of an upload is gone on with, or passed over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from coldstream.errors import BadCrcError
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import UploadedPart
from tests.support.sending import (
    KEY,
    PART_BYTES,
    KilledError,
    killed,
    leave,
    make,
    send,
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.ingest.multipart.PART_BYTES", PART_BYTES)


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
    objects.requests.clear()
    with pytest.raises(KilledError):
        send(slice_, killed(objects, 5))
    assert left in objects.uploads(KEY)
    send(slice_, objects)
    assert objects.requests["CreateMultipartUpload"] == 1
    assert objects.objects == {KEY: slice_.path.read_bytes()}
    assert objects.uploads(KEY) == ()


def test_the_upload_that_came_farthest_is_continued(tmp_path: Path) -> None:
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


class Lagging(MemoryObjects):
    """Still lists uploads that are gone."""

    def uploads(self, key: str) -> tuple[str, ...]:
        return ("gone-1", *super().uploads(key), "gone-2")


def test_uploads_that_are_listed_and_gone_are_passed_over(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    data = slice_.path.read_bytes()
    objects = Lagging()
    leave(objects, (1, data[:PART_BYTES]))
    objects.requests.clear()
    send(slice_, objects)
    assert objects.objects == {KEY: data}
    assert (objects.requests["UploadPart"], objects.requests["CreateMultipartUpload"]) == (2, 0)


def test_uploads_to_keys_that_begin_alike_are_left_alone(tmp_path: Path) -> None:
    objects = MemoryObjects()
    longer = leave(objects, (1, bytes(PART_BYTES)), key=KEY + ".json")
    send(make(tmp_path, 2 * PART_BYTES), objects)
    assert objects.uploads(KEY + ".json") == (longer,)


class Damaging(MemoryObjects):
    """Finds, the first time, that the parts do not make the object that was said."""

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        if self.requests["CompleteMultipartUpload"] == 0:
            crc32 ^= 1
        super().complete_upload(key, upload_id, parts, crc32=crc32)


def test_parts_that_do_not_make_the_whole_are_not_continued(tmp_path: Path) -> None:
    slice_ = make(tmp_path, 3 * PART_BYTES)
    objects = Damaging()
    with pytest.raises(BadCrcError):
        send(slice_, objects)
    assert objects.uploads(KEY) == ()
    send(slice_, objects)
    assert objects.requests["UploadPart"] == 6
    assert objects.objects == {KEY: slice_.path.read_bytes()}
