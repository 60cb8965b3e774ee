"""An event means one copy of a segment, and judges no other that is staged at its key before or after."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.archive.upload import UploadResult
from coldstream.ingest.stage import find_rolled, stage
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import RangeRead
from coldstream.units import ByteRange
from tests.support.segments import STREAM, MemoryArchive


@pytest.fixture
def archive() -> MemoryArchive:
    return MemoryArchive()


def test_a_redelivered_event_leaves_another_copy_to_the_event_of_that_copy(
    archive: MemoryArchive, directory: Path, expected: tuple[object, ...]
) -> None:
    bad, *others = archive.stage(directory)
    good = archive.objects.objects[bad.staged_key]
    archive.objects.objects[bad.staged_key] = good[:-1]  # what another replica's disk made of it
    (first, *_) = archive.stage(directory)
    assert first.etag != bad.etag
    assert archive.uploader.upload(first).quarantined is not None
    (second, *_) = archive.stage(directory)
    archive.objects.requests.clear()
    for _ in range(2):
        assert archive.uploader.upload(first) == UploadResult(is_stale=True)
    assert archive.objects.requests == {"GetObject": 2}
    assert archive.body(second.staged_key) == good
    for event in (second, *others):
        archive.uploader.upload(event)
    assert archive.state() == expected


def test_a_redelivered_event_of_an_archived_copy_does_not_delete_another_one(
    archive: MemoryArchive, directory: Path
) -> None:
    event = archive.stage(directory)[0]
    archive.uploader.upload(event)
    archive.objects.objects[event.staged_key] = b"another copy, bad as it is"
    assert archive.uploader.upload(event).is_stale
    assert archive.body(event.staged_key) == b"another copy, bad as it is"
    (other, *_) = archive.stage(directory)
    assert archive.uploader.upload(other).quarantined is not None


class Replacing(MemoryObjects):
    """Replaces the staged copy right before a call of some kind; `countdown` says before which of them."""

    def __init__(self, call: str, countdown: int) -> None:
        super().__init__()
        self.call = call
        self.countdown = countdown
        self.other = b""
        self._turn = threading.RLock()

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        self._come("get_range", key)
        return super().get_range(key, byte_range, if_match=if_match)

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        self._come("copy", source_key)
        super().copy(source_key, target_key, if_match=if_match)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        self._come("delete", key)
        super().delete(key, if_match=if_match)

    def _come(self, call: str, key: str) -> None:
        with self._turn:
            if call == self.call and "/staging/" in key:
                self.countdown -= 1
                if self.countdown == 0:
                    self.objects[key] = self.other


@pytest.mark.parametrize("names_its_copy", [True, False])
@pytest.mark.parametrize(
    ("call", "times", "is_bad"), [("get_range", 2, False), ("copy", 1, True), ("delete", 1, False)]
)
def test_a_copy_that_was_replaced_is_no_longer_judged(
    directory: Path, monkeypatch: pytest.MonkeyPatch, call: str, times: int, *, is_bad: bool, names_its_copy: bool
) -> None:
    monkeypatch.setattr("coldstream.archive.staged_segment.RANGE_BYTES", 50_000)
    archive = MemoryArchive()
    objects = Replacing(call, times)
    archive.use(objects=objects)
    path = find_rolled(directory)[0].path
    objects.other = path.read_bytes()
    if is_bad:
        path.write_bytes(objects.other[:-1])
    event = stage(find_rolled(directory)[0], STREAM, archive.objects, archive.keys)
    if not is_bad:
        objects.other = objects.other[:-1]
    done = archive.uploader.upload(event if names_its_copy else replace(event, etag=None))
    assert done.quarantined is None
    assert done.is_stale == (call != "delete")
    assert archive.body(event.staged_key) == objects.other
    assert not any("/quarantine/" in key for key in objects.objects)


def test_an_event_of_an_earlier_release_means_the_copy_that_is_there(
    archive: MemoryArchive, directory: Path, expected: tuple[object, ...]
) -> None:
    for event in archive.stage(directory):
        archive.uploader.upload(replace(event, etag=None))
    assert archive.state() == expected


def test_a_copy_that_is_dealt_with_before_its_announcement_is_announced_without_it(
    archive: MemoryArchive, directory: Path
) -> None:
    class Fast(MemoryObjects):
        """Another agent's event deals with this copy before its stager looks at it."""

        def info(self, key: str):  # type: ignore[no-untyped-def]  # as it is there
            found = super().info(key)
            if found is not None:
                archive.uploader.upload(replace(event, etag=found.etag))
                return super().info(key)
            return found

    event = archive.stage(directory)[0]
    archive.use(objects=Fast())
    late = stage(find_rolled(directory)[0], STREAM, archive.objects, archive.keys)
    assert late.etag is None
    done = archive.uploader.upload(late)
    assert (done.quarantined, done.fragments_committed) == (None, 0)
