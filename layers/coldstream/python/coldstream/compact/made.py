"""Made: what merging and rewriting have in common, the object that they made."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.frames import Frames


@dataclass(frozen=True, slots=True)
class Made:
    """An object that is complete, and which bytes passed: read and sent here, and copied by the store on its own."""

    object_bytes: int
    crc32: int
    read_bytes: int
    sent_bytes: int
    copied_bytes: int = 0
    frames: Frames | None = None
