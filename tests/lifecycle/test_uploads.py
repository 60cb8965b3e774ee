"""Uploads in flight while their stream is deleted, or after: nothing of them is left behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.purge import PurgeState
from coldstream.lifecycle.stores import LONGEST_UPLOAD_MS, LifecycleStores
from coldstream.lifecycle.tend import tend
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.memory.objects import MemoryObjects
from tests.support.compacting import Calls, Inline, Killed
from tests.support.lifecycle import GRACE_MS, Clock
from tests.support.segments import STREAM, MemoryArchive, write_stream

INCARNATION = STREAM.incarnation


@pytest.fixture(autouse=True)
def _as_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in one thread, without delays."""
    for module in ("coldstream.archive.upload", "coldstream.archive.staged_segment"):
        monkeypatch.setattr(f"{module}.ThreadPoolExecutor", Inline)
    monkeypatch.setattr("coldstream.store.races.FIRST_DELAY_S", 0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("streams") / "stream"
    write_stream(found)
    return found


class Upload:
    """A stream of which one segment is archived, and the next is about to be."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.archive = MemoryArchive(fragment_bytes=20_000)
        self.archive.use(objects=MemoryObjects(clock=self.clock))
        self.archive.uploader = replace(self.archive.uploader, now=self.clock)
        self.first, self.event, *others = self.archive.stage(directory)
        for other in others:
            self.archive.objects.delete(other.staged_key)
        self.archive.uploader.upload(self.first)

    @property
    def stores(self) -> LifecycleStores:
        archive = self.archive
        return LifecycleStores.open(archive.table, archive.objects, archive.keys, grace_ms=GRACE_MS)

    def run(self, on_call: Callable[[int, str, bool], None]) -> Calls:
        """Upload the next segment, telling of each call."""
        calls = Calls(self.archive.table, self.archive.objects, on_call)
        replace(self.archive.uploader, table=calls.table, objects=calls.objects).upload(self.event)
        return calls

    def delete(self) -> None:
        delete_stream(self.stores, INCARNATION, grace_ms=0, by="me")

    def tend(self) -> PurgeState:
        (report,) = tend(self.stores, [STREAM])
        assert report.error is None
        return report.purge.state

    def announce_again(self, *events: SegmentRolled) -> None:
        """Let the queue deliver again what it did not see handled."""
        for event in events:
            with suppress(UnavailableError):
                assert self.archive.uploader.upload(event).removed

    def assert_ends_with_nothing(self) -> None:
        """The purge ends, and in the bucket there is only what says that the stream is deleted."""
        for _ in range(5):
            if self.tend() is PurgeState.PURGED:
                break
            self.clock.pass_ms(max(LONGEST_UPLOAD_MS, LONGEST_GRACE_MS) + 1000)
        else:
            raise AssertionError("it never ends")
        assert not [key for key in self.archive.objects.objects if "/control/" not in key]
        assert self.archive.log() == ()
        head = self.archive.table.head(INCARNATION)
        assert head is not None
        assert head.is_deleted


@pytest.mark.parametrize("has_purge", [False, True], ids=["deleted", "deleted and purged"])
def test_deleted_before_any_call_of_an_upload_nothing_is_left(directory: Path, *, has_purge: bool) -> None:
    for number in count(1):
        upload = Upload(directory)

        def on_call(called: int, _: str, done: bool, upload: Upload = upload, number: int = number) -> None:  # noqa: FBT001
            if called == number and not done:
                upload.delete()
                if has_purge:
                    upload.tend()

        with suppress(ColdstreamError):
            calls = upload.run(on_call)
        if calls.number < number:
            break
        upload.announce_again(upload.event)
        upload.assert_ends_with_nothing()
    assert number > 15


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_an_upload_that_died_at_any_call_leaves_nothing_in_a_deleted_stream(directory: Path, *, is_done: bool) -> None:
    for number in count(1):
        upload = Upload(directory)

        def on_call(called: int, _: str, done: bool, number: int = number) -> None:  # noqa: FBT001
            if called > number or (called == number and done is is_done):
                raise Killed

        try:
            upload.run(on_call)
        except Killed:
            upload.delete()
            upload.assert_ends_with_nothing()
        else:
            break
    assert number > 15


def test_a_stream_deleted_five_seconds_after_its_last_publish_stays_deleted(directory: Path) -> None:
    upload = Upload(directory)
    upload.archive.uploader.upload(upload.event)
    upload.clock.pass_ms(5000)
    upload.delete()
    again = upload.archive.stage(directory)
    upload.announce_again(*again)
    upload.assert_ends_with_nothing()
    upload.announce_again(*upload.archive.stage(directory))
    assert not [key for key in upload.archive.objects.objects if "/control/" not in key]
