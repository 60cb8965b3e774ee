"""Segments: the files that make up a stream.

    segment        header · chunks to the end of the file; all integers big-endian

    header, 8 bytes
     0  magic      4    "OSIL"
     4  version    u32  1

A segment's name is the id of its first chunk in 20 digits and `.segment`. Its index lies beside it, with the same
digits and `.index`. An index record has 32 bits for a chunk's position, so no chunk may begin past them. Upstream:
`osiris_log.erl` (open_new_segment).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from coldstream.errors import BadMagicError, BadVersionError, TruncatedError
from coldstream.units import MAX_OFFSET, Offset

_MAGIC = b"OSIL"
_VERSION = (1).to_bytes(4, "big")

SEGMENT_HEADER = _MAGIC + _VERSION
SEGMENT_HEADER_BYTES = 8
assert len(SEGMENT_HEADER) == SEGMENT_HEADER_BYTES

MAX_POSITION = (1 << 32) - 1
"""The last byte at which a chunk of a segment or of a fragment can begin."""

Suffix = Literal["segment", "index"]

_FILE_NAME = re.compile(r"([0-9]{20})\.(segment|index)", re.ASCII)


def check_file_header(view: memoryview | bytes, expected: bytes, *, source: str, position: int = 0) -> None:
    """Check the first eight bytes of a segment, an index or a fragment: four of magic, four of version.

    `view` lies at byte `position` of `source`. Raises TruncatedError, BadMagicError, BadVersionError.
    """
    found = bytes(view[: len(expected)])
    # As much of the magic as there is: a file that ends inside it is truncated, and not of another kind.
    if found[:4] != expected[:4][: len(found)]:
        raise BadMagicError(source, position, "magic", expected=expected[:4], found=found[:4])
    if len(found) < len(expected):
        raise TruncatedError(source, position, "header is cut short", expected=len(expected), found=len(found))
    if found != expected:
        raise BadVersionError(
            source,
            position,
            f"version of {expected[:4].decode()}",
            expected=int.from_bytes(expected[4:]),
            found=int.from_bytes(found[4:]),
        )


def file_name(first_offset: Offset, suffix: Suffix) -> str:
    """Return the name of the segment or index file whose first chunk has that id."""
    return f"{first_offset:020}.{suffix}"


def first_offset_of(name: str, suffix: Suffix | None = None) -> Offset | None:
    """Read the first chunk's id from the name of a segment or index file; None for any other name.

    With a `suffix`, names that end in the other one are other names, too.
    """
    match = _FILE_NAME.fullmatch(name)
    if match is None or suffix not in {None, match[2]} or int(match[1]) > MAX_OFFSET:
        return None
    return Offset(int(match[1]))


def segment_paths(paths: Iterable[Path]) -> dict[Offset, Path]:
    """Return the segment files among `paths` by first offset, in ascending order."""
    by_offset = ((first_offset_of(path.name, "segment"), path) for path in paths)
    return dict(sorted((offset, path) for offset, path in by_offset if offset is not None))
