"""The header of a segment file, and its name."""

from __future__ import annotations

import pytest

from coldstream.errors import BadMagicError, BadVersionError, TruncatedError
from coldstream.format.segment import SEGMENT_HEADER, check_file_header, file_name, first_offset_of
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
