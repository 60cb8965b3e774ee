"""Staged segments: what the archive has is garbage once no event can come for it."""

from __future__ import annotations

from coldstream.garbage.kinds import ObjectState
from coldstream.manifest.cluster import cluster
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import Offset, TimestampMs
from tests.garbage.littered import LitteredArchive, another
from tests.store.samples import ORDERS

LIFE = ORDERS.incarnation


def test_staged_segments_go_once_they_are_archived_and_no_event_can_come() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    archived = archive.put(archive.keys.staged(LIFE, Offset(0), Offset(10)))
    of_cluster = archive.put(Keys("some/prefix/", cluster("north")).staged(LIFE, Offset(2), Offset(8)))
    waiting = archive.put(archive.keys.staged(LIFE, Offset(5), Offset(20)))
    unknown = archive.put(archive.keys.staged(another(1).incarnation, Offset(0), Offset(10)))
    archive.pass_days(14)
    archive.collect()
    assert {archived, of_cluster, waiting, unknown} <= archive.stored
    archive.pass_days(2)
    report = archive.collect()
    assert not {archived, of_cluster} & archive.stored
    assert {waiting, unknown} <= archive.stored
    assert report.total(ObjectState.WAITING).objects == 2
    assert report.deletions.objects == 2


def test_a_copy_that_is_staged_again_meanwhile_stays() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    staged = archive.put(archive.keys.staged(LIFE, Offset(0), Offset(10)))
    archive.pass_days(20)

    class StagedAgain(MemoryObjects):
        def delete(self, key: str, *, if_match: str | None = None, signed_at: TimestampMs | None = None) -> None:
            self.put(key, b"another history")
            super().delete(key, if_match=if_match, signed_at=signed_at)

    archive.objects.__class__ = StagedAgain
    report = archive.collect()
    assert archive.objects.objects[staged] == b"another history"
    assert report.deletions.objects == 0
