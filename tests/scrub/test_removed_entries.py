"""Entries whose objects are damaged are given up only in the archive's own bucket, and not too many of them at once."""

from __future__ import annotations

import pytest

from coldstream.manifest.entry import FragmentEntry
from coldstream.scrub import report as report_module
from coldstream.scrub.damage import Damage, Finding
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.store.keys import Keys
from tests.support.archive import ChunkArchive
from tests.support.scrubbing import LATER, NO_LIMIT, scrub, small_archive


def entries_of(archive: ChunkArchive) -> list[FragmentEntry]:
    return list(archive.table._partitions[archive.stream.incarnation].entries.values())


def test_nothing_is_given_up_in_a_bucket_that_has_nothing_of_the_stream() -> None:
    archive = small_archive()
    before = entries_of(archive)
    for entry in before:
        del archive.objects.objects[entry.key]
    report = scrub(archive, repair=True, take_again=True)
    assert entries_of(archive) == before
    assert (report.mended, report.left) == ((), len(before))
    (note,) = report.notes
    assert "COLDSTREAM_PREFIX" in note


@pytest.mark.parametrize("left", [0, 2, -1])
def test_a_sound_object_beside_a_damaged_one_or_at_the_end_proves_the_bucket(left: int) -> None:
    archive = small_archive()
    entries = entries_of(archive)
    for entry in entries:
        if entry is not entries[left]:
            del archive.objects.objects[entry.key]
    report = scrub(archive, repair=True, take_again=True)
    assert report.mended
    assert entries[left].next_offset in {entry.next_offset for entry in entries_of(archive)}


def test_a_run_gives_up_no_more_than_it_may() -> None:
    archive = small_archive()
    entries = entries_of(archive)
    for entry in entries[1:4]:
        del archive.objects.objects[entry.key]
    report = scrub(archive, repair=True, take_again=True, max_removed=2)
    assert (len(report.mended), report.left) == (2, 1)
    assert report.notes == ("as many entries were removed as this run may: --max-removed permits more",)
    assert len(entries_of(archive)) == len(entries) - 2


def test_a_run_keeps_the_first_findings_and_hands_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "MAX_KEPT", 2)
    archive = small_archive()
    entries = entries_of(archive)[1:]
    for entry in entries:
        archive.objects.objects[entry.key] += b"?"
    handed: list[Finding] = []
    scrubber = Scrubber(archive.table, archive.objects, Keys(), lambda: LATER, pause=lambda _: None)
    report = scrubber.run(None, ScrubOptions(), NO_LIMIT, on_more=lambda finding, _: handed.append(finding))
    found = [finding.first_offset for finding in (*report.findings, *handed)]
    assert found == [entry.first_offset for entry in entries]
    assert (len(report.findings), report.found, report.left) == (2, len(entries), len(entries))
    assert report.counts == {Damage.OBJECT_SIZE: len(entries)}
