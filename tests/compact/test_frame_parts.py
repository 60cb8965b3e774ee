"""Frames as the parts of an object."""

from __future__ import annotations

import pytest

from coldstream.compact.frame_parts import FrameParts
from coldstream.compact.part_upload import PartUpload
from coldstream.store.memory.objects import MemoryObjects


def test_frames_are_sent_as_soon_as_they_fill_a_part_and_what_is_left_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.compact.frame_parts.PART_BYTES", 250)
    sizes: list[int] = []
    with PartUpload(MemoryObjects(), "key", sizes.append) as upload:
        parts = FrameParts(upload)
        for size in (100, 100, 50, 300, 100):
            parts.add(bytes(size))
        upload.settle()
        assert sizes == [250, 300]
        parts.flush()
        parts.flush()
        upload.settle()
    assert sizes == [250, 300, 100]
