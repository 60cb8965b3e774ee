"""A new object in parts: a multipart upload that comes to its end, or leaves nothing behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Self
from zlib import crc32

from coldstream.errors import ColdstreamError, ConflictError
from coldstream.store.ports import ObjectStore, UploadedPart
from coldstream.units import MIB, ByteRange

MIN_PART_BYTES = 5 * MIB
"""What S3 wants of every part but the last."""

PARTS_AT_ONCE = 3


class PartUpload:
    """Sends parts, some at once, to a key that has no object; as a context manager, which aborts what is not complete.

    Nobody else knows the upload: what it completed is the caller's alone, whatever another puts together of the same
    fragments. Memory: PARTS_AT_ONCE parts. `on_bytes` is called, in the caller's thread, with the size of each part
    that is there.
    """

    def __init__(self, objects: ObjectStore, key: str, on_bytes: Callable[[int], None]) -> None:
        self._objects = objects
        self._key = key
        self._on_bytes = on_bytes
        self._in_flight: deque[Future[UploadedPart]] = deque()
        self._done: list[UploadedPart] = []
        self._is_complete = False

    def __enter__(self) -> Self:
        self._upload_id = self._objects.create_upload(self._key)
        self._pool = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="part")
        return self

    def __exit__(self, *_: object) -> None:
        # First the parts: one that arrives behind the abort would stay.
        self._pool.shutdown(cancel_futures=True)
        if not self._is_complete:
            with suppress(ColdstreamError):  # what is left of it, the bucket's lifecycle rule ends
                self._objects.abort_upload(self._key, self._upload_id)

    def add(self, send: Callable[[int], UploadedPart]) -> None:
        """Send the next part by `send`, which is given its number, in a thread.

        Waits while there are PARTS_AT_ONCE, and raises what sending one of them did.
        """
        while len(self._in_flight) >= PARTS_AT_ONCE:
            self._settle()
        self._in_flight.append(self._pool.submit(send, len(self._done) + len(self._in_flight) + 1))

    def put(self, number: int, data: bytes) -> UploadedPart:
        """Send a part of these bytes."""
        return self._objects.put_part(self._key, self._upload_id, number, data, crc32=crc32(data))

    def copy(self, number: int, source_key: str, byte_range: ByteRange, *, if_match: str) -> UploadedPart:
        """Have the store copy a part from another object."""
        return self._objects.copy_part(source_key, byte_range, self._key, self._upload_id, number, if_match=if_match)

    def settle(self) -> tuple[UploadedPart, ...]:
        """Wait for all parts; return them, in order."""
        while self._in_flight:
            self._settle()
        return tuple(self._done)

    def complete(self, crc32_of_all: int) -> None:
        """Make the object of all parts. Raises ObjectExistsError when another is at the key, BadCrcError."""
        parts = self.settle()
        try:
            self._objects.complete_upload(self._key, self._upload_id, parts, crc32=crc32_of_all)
        except ConflictError:
            # Of a request that was sent twice, the second may have met what the first had done.
            if not self._was_completed(sum(part.size_bytes for part in parts), crc32_of_all):
                raise
        self._is_complete = True

    def _was_completed(self, size_bytes: int, crc32_of_all: int) -> bool:
        with suppress(ConflictError):
            self._objects.parts(self._key, self._upload_id)
            return False
        there = self._objects.info(self._key)
        return there is not None and (there.size_bytes, there.crc32) == (size_bytes, crc32_of_all)

    def _settle(self) -> None:
        part = self._in_flight.popleft().result()
        self._done.append(part)
        self._on_bytes(part.size_bytes)
