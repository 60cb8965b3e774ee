"""The blocks of a staged copy, in whatever order its threads come to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from coldstream.archive.staged_segment import StagedSegment
from coldstream.store.memory.objects import MemoryObjects


def test_the_first_block_stays_the_first_though_another_thread_is_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_first(
        _pool: object, read: Callable[[int], bytes], starts: Sequence[int], *, max_calls: int
    ) -> Iterator[bytes]:
        assert max_calls > 1
        return iter([read(start) for start in reversed(starts)][::-1])

    monkeypatch.setattr("coldstream.archive.staged_segment.map_ahead", last_first)
    monkeypatch.setattr("coldstream.archive.staged_segment.BLOCK_BYTES", 4)
    objects = MemoryObjects()
    objects.put("copy", b"0123456789")
    staged = StagedSegment(objects, "copy", None)
    assert [*staged.blocks()] == [*staged.blocks()] == [b"0123", b"4567", b"89"]
