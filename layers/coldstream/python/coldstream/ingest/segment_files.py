"""The segment files of a stream's directory."""

from __future__ import annotations

from pathlib import Path

from coldstream.format.segment import first_offset_of
from coldstream.units import Offset


def segment_files(directory: Path) -> dict[Offset, Path]:
    """Return the segment files of a directory by their first offset, in order. Raises OSError if it cannot be read."""
    named = ((first_offset_of(path.name), path) for path in directory.iterdir() if path.suffix == ".segment")
    return dict(sorted((first_offset, path) for first_offset, path in named if first_offset is not None))
