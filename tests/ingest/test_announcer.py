"""What became of an announced slice, whatever happens between two looks at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import UnavailableError
from coldstream.ingest import announcer as announcer_module
from coldstream.ingest.announcer import Announcement, Announcer, SliceOutcome
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.change import Change
from coldstream.manifest.deletion import plan_delete, plan_undelete
from coldstream.manifest.entry import Head, Loss
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ObjectInfo
from coldstream.units import Offset, TimestampMs
from tests.support.rig import Bus
from tests.support.segments import STREAM, MemoryArchive, write_stream


class Scene:
    """A stream's first rolled segment, its announcer, and the upload function."""

    def __init__(self, directory: Path) -> None:
        write_stream(directory)
        self.slice: SegmentSlice = find_rolled(directory)[0]
        self.archive = MemoryArchive()
        self.bus = Bus(self.archive)
        self.announcer = Announcer(self.archive.table, self.archive.objects, self.bus, self.archive.keys)

    def announce(self, *, is_contested: bool = False) -> Announcement:
        return self.announcer.put(self.announcer.stage(self.slice, STREAM), is_contested=is_contested)

    def change(self, plan: Callable[[Head], Change]) -> None:
        head = self.archive.table.head(STREAM.incarnation)
        assert head is not None
        self.archive.table.apply(plan(head))

    def damage(self) -> None:
        content = bytearray(self.slice.path.read_bytes())
        content[-1] ^= 1
        self.slice.path.write_bytes(content)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "orders")


def test_a_slice_is_pending_until_the_function_has_archived_it(scene: Scene) -> None:
    announcement = scene.announce()
    assert scene.announcer.outcome(announcement) is SliceOutcome.PENDING
    scene.bus.handle()
    assert scene.announcer.outcome(announcement) is SliceOutcome.ARCHIVED


def test_the_same_bytes_that_were_in_quarantine_before_are_pending_until_they_are_judged_again(scene: Scene) -> None:
    scene.damage()
    first = scene.announce()
    scene.bus.handle()
    assert scene.announcer.outcome(first) is SliceOutcome.QUARANTINED
    again = scene.announce()
    assert again.quarantined_before is not None
    assert scene.announcer.outcome(again) is SliceOutcome.PENDING
    scene.bus.handle()
    assert scene.announcer.outcome(again) is SliceOutcome.QUARANTINED


def test_a_good_copy_that_is_staged_after_a_bad_one_is_waited_for(scene: Scene) -> None:
    good = scene.slice.path.read_bytes()
    scene.damage()
    bad = scene.announce()
    scene.bus.handle()
    scene.slice.path.write_bytes(good)
    scene.announce()  # another replica's
    assert scene.announcer.outcome(bad) is SliceOutcome.PENDING
    scene.bus.handle()
    assert scene.announcer.outcome(bad) is SliceOutcome.ARCHIVED


def test_what_is_archived_between_two_looks_is_not_taken_for_quarantined(scene: Scene) -> None:
    """The manifest still names the bad copy of an earlier announcement when the good one is archived and deleted."""
    good = scene.slice.path.read_bytes()
    scene.damage()
    bad = scene.announce()
    scene.bus.handle()
    scene.slice.path.write_bytes(good)

    class Hasty(MemoryObjects):
        """Archives what is staged just before it is looked for."""

        def info(self, key: str) -> ObjectInfo | None:
            scene.bus.handle()
            return super().info(key)

    scene.announce()
    hasty = Hasty()
    hasty.objects, hasty.requests = scene.archive.objects.objects, scene.archive.objects.requests
    looking = Announcer(scene.archive.table, hasty, scene.bus, scene.archive.keys)
    assert looking.outcome(bad) is SliceOutcome.ARCHIVED


def test_a_contested_slice_is_pending_though_its_offsets_are_covered(scene: Scene) -> None:
    scene.announce()
    scene.bus.handle()
    contested = scene.announce(is_contested=True)
    assert scene.announcer.outcome(contested) is SliceOutcome.PENDING
    scene.bus.handle()
    assert scene.announcer.outcome(contested) is SliceOutcome.ARCHIVED


@pytest.mark.parametrize("is_archived", [True, False])
def test_a_contested_slice_that_was_dropped_while_the_stream_was_deleted_is_not_taken_for_archived(
    scene: Scene, *, is_archived: bool
) -> None:
    if is_archived:  # Then its offsets are covered, but nobody has compared this copy with what covers them.
        scene.announce()
        scene.bus.handle()
    else:
        table = scene.archive.table
        record_missing(table, STREAM, Loss(Offset(0), Offset(1), "the first change of the stream", TimestampMs(0)))
    contested = scene.announce(is_contested=True)
    scene.change(lambda head: plan_delete(head, TimestampMs(1), TimestampMs(9), "ann"))
    scene.bus.handle()
    assert not scene.announcer._is_staged(contested.rolled)
    assert scene.announcer.outcome(contested) is SliceOutcome.UNKNOWN
    scene.change(lambda head: plan_undelete(head, TimestampMs(2), "ann"))
    assert scene.announcer.outcome(contested) is SliceOutcome.UNKNOWN
    again = scene.announce(is_contested=True)
    scene.bus.handle()
    assert scene.announcer.outcome(again) is SliceOutcome.ARCHIVED


def test_a_wait_that_brings_nothing_names_the_first_segment(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer_module, "FIRST_POLL_S", 0.001)
    report = scene.announcer.announce(STREAM, [scene.slice], lambda _: None)
    with pytest.raises(UnavailableError, match="1 segments are announced and not archived, the first is segment 0"):
        scene.announcer.wait([report], 0.01, lambda _: None)
    scene.bus.handle()
    settled: list[int] = []
    scene.announcer.wait([report], 0.01, settled.append)
    assert settled == [1]


def test_what_the_manifest_covers_is_not_announced(scene: Scene) -> None:
    scene.announce()
    scene.bus.handle()
    report = scene.announcer.announce(STREAM, [scene.slice], lambda _: None)
    assert (report.archived, report.announced) == (1, [])
    assert scene.bus.waiting == []
