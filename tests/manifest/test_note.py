from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.manifest.entry import LastUserChunk
from coldstream.manifest.note import MAX_NOTE_BYTES, EntryNote
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.units import MAX_OFFSET, ChunkId, Epoch, Offset, TimestampMs
from tests.manifest.samples import fragment

FULL = EntryNote(
    Offset(MAX_OFFSET),
    Epoch(MAX_OFFSET),
    Epoch(MAX_OFFSET),
    2**40,
    LastUserChunk(ChunkId(MAX_OFFSET), 2**32, TimestampMs(-(2**63))),
    2**32 - 1,
    erased=True,
    points=(0, 1, 5, 900),
)


@pytest.mark.parametrize(
    "note", [FULL, EntryNote(Offset(0), Epoch(0), None, 0, None, None), replace(FULL, points=None)]
)
def test_a_note_is_read_back(note: EntryNote) -> None:
    text = note.to_text()
    assert text.isascii()
    assert EntryNote.from_text(text, source="key") == note


def test_the_points_of_a_merged_fragment_of_the_default_size_fit() -> None:
    note = replace(FULL, points=tuple(range(0, 512 * 200, 200)))
    assert EntryNote.from_text(note.to_text(), source="key") == note


def test_the_note_of_a_merged_fragment_has_the_points_of_its_entry() -> None:
    points = tuple(SparsePoint(ChunkId(at), at, 8 + at, TimestampMs(0), TimestampMs(0)) for at in (0, 5, 900))
    entry = replace(fragment(0, 1000, chunks=901), sparse=SparseIndex(points))
    assert EntryNote.of(entry, has_points=True).points == (0, 5, 900)
    assert EntryNote.of(entry).points is None


def test_points_that_do_not_fit_are_left_out() -> None:
    note = replace(FULL, points=tuple(range(0, 4096 * 200, 200)))
    assert len(note.to_text()) <= MAX_NOTE_BYTES
    assert EntryNote.from_text(note.to_text(), source="key") == replace(FULL, points=None)


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"v":1}', FULL.to_text()[:-1], FULL.to_text().replace('"points":"', '"points":"!')],
)
def test_what_is_no_note_is_told_with_its_source(text: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        EntryNote.from_text(text, source="the key")
    assert caught.value.source == "the key"


def test_a_note_of_a_later_version_is_refused() -> None:
    with pytest.raises(BadVersionError):
        EntryNote.from_text(FULL.to_text().replace('"v":1', '"v":2'), source="key")
