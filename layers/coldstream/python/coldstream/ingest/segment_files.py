"""The segment files of a stream's directory."""

from __future__ import annotations

from pathlib import Path

from coldstream.format.segment import segment_paths
from coldstream.units import Offset


def segment_files(directory: Path) -> dict[Offset, Path]:
    """Return the segment files of a directory by their first offset, in order. Raises OSError if it cannot be read."""
    return segment_paths(directory.iterdir())
