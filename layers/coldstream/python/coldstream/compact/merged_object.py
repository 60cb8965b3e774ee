"""The object that merging or rewriting a group has made."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.frames import Frames


@dataclass(frozen=True, slots=True)
class MergedObject:
    """A complete object, and the bytes that passed to make it.

    `read_bytes` and `sent_bytes` passed this process; `copied_bytes` the store moved by itself. `frames` are those of a
    compressed object.
    """

    object_bytes: int
    crc32: int
    read_bytes: int
    sent_bytes: int
    copied_bytes: int = 0
    frames: Frames | None = None
