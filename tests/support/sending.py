"""Sending slices, with every request of the sender under the test's control."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import Offset
from tests.support.segments import STREAM

PART_BYTES = 1000
KEY = Keys().staged(STREAM.incarnation, Offset(0), Offset(10))


class KilledError(Exception):
    """Stands for the end of the process."""


class Process:
    """The objects as one process sees them.

    `hook` is called with the number of each request, from 0, before the request takes effect and after.
    """

    def __init__(self, objects: MemoryObjects, hook: Callable[[int, str], None] = lambda _, __: None) -> None:
        self.asked = self.in_flight = self.most_in_flight = 0
        self._objects = objects
        self._hook = hook
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._objects, name)
        return partial(self._call, there) if callable(there) else there

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            number, self.asked = self.asked, self.asked + 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self._hook(number, "before")
            answer = call(*args, **kwargs)
            self._hook(number, "after")
        finally:
            with self._lock:
                self.in_flight -= 1
        return answer


def killed(objects: MemoryObjects, at: int, when: str = "before") -> Process:
    """Make a process that ends at a request: that one fails, and so do all after it."""

    def hook(number: int, moment: str) -> None:
        if number > at or (number, moment) == (at, when):
            raise KilledError

    return Process(objects, hook)


def interrupted(objects: MemoryObjects, at: int, when: str, by: Callable[[], object]) -> Process:
    """Make a process in which `by` is called at one of its requests."""

    def hook(number: int, moment: str) -> None:
        if (number, moment) == (at, when):
            by()

    return Process(objects, hook)


def make(directory: Path, size_bytes: int, *, seed: int = 1) -> SegmentSlice:
    """Make a slice that takes so many bytes when staged."""
    path = directory / f"{seed:020}.segment"
    path.write_bytes(SEGMENT_HEADER + random.Random(seed).randbytes(size_bytes - 8))
    return SegmentSlice(path, Offset(0), Offset(10), 8, size_bytes)


def send(
    slice_: SegmentSlice, objects: MemoryObjects | Process, on_bytes: Callable[[int], None] = lambda _: None
) -> SegmentRolled:
    return stage(slice_, STREAM, objects, Keys(), on_bytes=on_bytes)


def requests_of(slice_: SegmentSlice) -> int:
    process = Process(MemoryObjects())
    send(slice_, process)
    return process.asked


def leave(objects: MemoryObjects, *parts: tuple[int, bytes], key: str = KEY) -> str:
    """Leave an unfinished upload."""
    upload_id = objects.create_upload(key)
    for number, data in parts:
        objects.put_part(key, upload_id, number, data, crc32=crc32(data))
    return upload_id
