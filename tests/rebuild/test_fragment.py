from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from coldstream.errors import BadCrcError, CorruptionError, ReplacedError
from coldstream.manifest.entry import Encoding
from coldstream.rebuild.entries import Unreadable, rebuild_entries
from coldstream.rebuild.footer import read_footer
from coldstream.rebuild.fragment import FoundFragment
from coldstream.store.keys import Keys
from coldstream.store.ports import RangeRead
from coldstream.units import ByteRange
from tests.rebuild.samples import compact, found, listed, small_points, unlinked, without_notes
from tests.support.segments import MemoryArchive, write_stream

MODULES = ("archive.draft", "manifest.groups", "rebuild.points")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryArchive:
    small_points(monkeypatch, MODULES)
    archive = MemoryArchive()
    write_stream(tmp_path, chunks=200)
    archive.announce(tmp_path)
    return archive


def test_an_uploaded_object_gives_back_every_field_of_its_entry(archive: MemoryArchive) -> None:
    log = archive.log()
    assert len(log) > 10
    assert any(len(entry.sparse.points) > 3 for entry in log)
    assert any(entry.segment_offset != entry.first_offset for entry in log)
    for entry in log:
        assert found(archive, entry).entry == unlinked(entry)


@pytest.mark.parametrize("encoding", Encoding)
def test_a_compacted_object_gives_back_every_field_of_its_entry(archive: MemoryArchive, encoding: Encoding) -> None:
    first = compact(archive, 0, 5, encoding)
    last = compact(archive, 1, 4, encoding)
    again = compact(archive, 0, 2, Encoding.ZSTD_SEEKABLE)
    assert len(again.sparse.points) > 5
    for entry in (first, last, again):
        assert found(archive, entry).entry == unlinked(entry)


@pytest.mark.parametrize("encoding", Encoding)
def test_an_object_of_an_earlier_release_is_read_for_what_its_note_would_say(
    archive: MemoryArchive, encoding: Encoding
) -> None:
    compact(archive, 0, 4, encoding)
    without_notes(archive)
    before = None
    for entry in archive.log():
        one = found(archive, entry)
        assert not one.has_note
        one = one.after(before)
        # Which points a merge kept, only the note tells.
        is_merged = entry.generation and encoding is Encoding.IDENTITY
        assert one.entry == unlinked(replace(entry, sparse=one.entry.sparse) if is_merged else entry)
        before = one


def test_a_compressed_object_of_many_blocks_is_read_for_its_note(
    archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = compact(archive, 0, 8, Encoding.ZSTD_SEEKABLE)
    without_notes(archive)
    monkeypatch.setattr("coldstream.rebuild.scan.BLOCK_BYTES", 5_000)
    archive.objects.requests.clear()
    assert found(archive, entry).entry == unlinked(entry)
    assert archive.objects.requests["GetObject"] > 10


@pytest.mark.parametrize("tail_bytes", [50, 300, 5_000])
def test_a_footer_that_the_first_read_does_not_hold_is_read_further(
    archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch, tail_bytes: int
) -> None:
    monkeypatch.setattr("coldstream.rebuild.footer.TAIL_BYTES", tail_bytes)
    compact(archive, 0, 4, Encoding.ZSTD_SEEKABLE)
    for entry in archive.log():
        archive.objects.requests.clear()
        assert found(archive, entry).entry == unlinked(entry)
        assert archive.objects.requests["GetObject"] <= (4 if entry.frames else 2)


def test_a_fragment_costs_a_head_and_one_get(archive: MemoryArchive) -> None:
    compact(archive, 0, 4, Encoding.ZSTD_SEEKABLE)
    for entry in archive.log():
        archive.objects.requests.clear()
        found(archive, entry)
        assert archive.objects.requests == {"HeadObject": 1, "GetObject": 1, "ListObjectsV2": 1}


@pytest.mark.parametrize("times", [1, 2])
def test_an_object_is_left_out_only_if_two_looks_find_it_damaged(
    archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    entry = archive.log()[0]
    right, wrong = archive.objects.get_range, count()

    def get_range(key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        read = right(key, byte_range, if_match=if_match)
        return replace(read, data=bytes(len(read.data))) if next(wrong) < times else read

    monkeypatch.setattr(archive.objects, "get_range", get_range)
    (one,) = rebuild_entries(archive.objects, Keys("archive/"), [listed(archive, entry.key)])
    assert isinstance(one, FoundFragment if times == 1 else Unreadable)


@pytest.mark.parametrize("encoding", Encoding)
def test_every_object_that_is_cut_short_is_refused(archive: MemoryArchive, encoding: Encoding) -> None:
    entry = compact(archive, 0, 2, encoding)
    body = archive.objects.objects[entry.key]
    for size_bytes in [*range(200), *range(200, len(body), 997), len(body) - 1]:
        archive.objects.objects[entry.key] = body[:size_bytes]
        with pytest.raises(CorruptionError):
            found(archive, entry)


def test_a_damaged_chunk_of_an_object_without_a_note_is_told(archive: MemoryArchive) -> None:
    entry = archive.log()[0]
    body = bytearray(archive.objects.objects[entry.key])
    body[entry.data_bytes // 2] ^= 1
    archive.objects.objects[entry.key] = bytes(body)
    with pytest.raises(CorruptionError) as caught:
        found(archive, entry)
    assert caught.value.source == entry.key
    assert isinstance(caught.value, BadCrcError) or caught.value.position


def test_an_object_that_was_written_anew_since_the_listing_is_not_taken_for_the_one_that_was_listed(
    archive: MemoryArchive,
) -> None:
    first, second = archive.log()[:2]
    listed = next(one for one in archive.objects.listed(first.key) if one.key == first.key)
    archive.objects.put(first.key, archive.body(second.key))
    with pytest.raises(ReplacedError, match="fragment"):
        read_footer(archive.objects, listed)
