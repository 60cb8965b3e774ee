"""Frames that are compressed ahead and sent in parts, and none once their sink is left."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore

import pytest

from coldstream.compact.frame_sink import COMPRESSORS, FrameSink
from coldstream.compact.part_upload import PartUpload
from coldstream.format.seekable import compress_frame
from coldstream.store.memory.objects import MemoryObjects


def test_who_gives_up_waits_for_the_frames_under_way_and_begins_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = Semaphore(0), Semaphore(0)
    may_end = Event()
    frames: list[bytes] = []

    def compress(content: bytes, level: int) -> bytes:
        frames.append(content)
        began.release()
        assert may_end.wait(10)
        ended.release()
        return compress_frame(content, level)

    class Pool(ThreadPoolExecutor):
        """Lets frames end once it has been told what becomes of the others."""

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  its own
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            may_end.set()
            super().shutdown(wait)

    def give_up(sink: FrameSink) -> None:
        for number in range(3 * COMPRESSORS):
            sink.write(bytes([number]))
            sink.cut()
        for _ in range(COMPRESSORS):
            assert began.acquire(timeout=10)
        raise KeyboardInterrupt

    monkeypatch.setattr("coldstream.compact.frame_sink.compress_frame", compress)
    monkeypatch.setattr("coldstream.compact.frame_sink.ThreadPoolExecutor", Pool)
    upload = PartUpload(MemoryObjects(), "key", lambda _: None)
    with pytest.raises(KeyboardInterrupt), FrameSink(upload, 1, lambda _: None) as sink:
        give_up(sink)
    assert sorted(frames) == [bytes([number]) for number in range(COMPRESSORS)]
    for _ in range(COMPRESSORS):
        assert ended.acquire(blocking=False), "a frame was under way when the sink was left"


def test_frames_are_sent_as_soon_as_they_fill_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.compact.frame_sink.PART_BYTES", 250)
    parts: list[int] = []
    with PartUpload(MemoryObjects(), "key", parts.append) as upload, FrameSink(upload, 1, lambda _: None) as sink:
        for _ in range(7):
            sink.write(random.Random(1).randbytes(100))
            sink.cut()
        sink.finish()
        upload.settle()
    *full, last = parts
    assert len(full) == 2, "of three frames each"
    assert all(250 <= size < 400 for size in full)
    assert 0 < last < 400
