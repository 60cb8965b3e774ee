"""The header of a segment file, and its name."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from coldstream.errors import BadMagicError, BadVersionError, TruncatedError
from coldstream.format.segment import SEGMENT_HEADER, check_file_header, file_name, first_offset_of, segment_paths
from coldstream.units import MAX_OFFSET, Offset


def test_header_is_magic_and_version():
    assert bytes.fromhex("4f53494c 00000001") == SEGMENT_HEADER


def test_what_follows_the_header_does_not_matter():
    check_file_header(SEGMENT_HEADER + b"more", SEGMENT_HEADER, source="a")


@pytest.mark.parametrize(
    ("found", "error", "position"),
    [
        (b"OSII\0\0\0\1", BadMagicError, 70),
        (b"X", BadMagicError, 70),
        (b"OSIL\0\0\0\2", BadVersionError, 70),
        (b"", TruncatedError, 70),
        (b"OSI", TruncatedError, 70),
        (b"OSIL\0\0\0", TruncatedError, 70),
    ],
)
def test_another_header_is_refused_with_its_position(found, error, position):
    with pytest.raises(error) as caught:
        check_file_header(found, SEGMENT_HEADER, source="a", position=70)
    assert caught.value.position == position


@pytest.mark.parametrize("offset", [0, 1234, MAX_OFFSET])
def test_a_files_name_gives_its_first_offset_back(offset):
    assert first_offset_of(file_name(Offset(offset), "segment")) == offset
    assert first_offset_of(file_name(Offset(offset), "index")) == offset


@pytest.mark.parametrize(
    "name",
    [
        "0.segment",
        f"{MAX_OFFSET + 1:020}.segment",
        "00000000000000000000.segment.tmp",
        "00000000000000000000.segment\n",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 20 + ".segment",
        "000000000000000000000.index",
        "",
    ],
)
def test_other_names_are_none_of_a_segment(name):
    assert first_offset_of(name) is None


def test_segment_paths_are_those_of_segments_by_first_offset() -> None:
    names = ["00000000000000000100.segment", "00000000000000000007.segment", "00000000000000000007.index", "notes.txt"]
    found = segment_paths(Path("orders") / name for name in names)
    assert list(found.items()) == [(7, Path("orders") / names[1]), (100, Path("orders") / names[0])]


@pytest.mark.parametrize(("suffix", "offset"), [("segment", 7), ("index", None)])
def test_a_name_is_held_to_the_suffix_asked_for(suffix: Literal["segment", "index"], offset: int | None) -> None:
    assert first_offset_of("00000000000000000007.segment", suffix) == offset
