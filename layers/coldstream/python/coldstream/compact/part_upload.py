"""A new object, sent in parts: a multipart upload that is completed, or leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Self
from zlib import crc32

from coldstream.errors import BadCrcError, ColdstreamError, ConflictError
from coldstream.flow.window import Window
from coldstream.format.checksum import combine_all_crc32
from coldstream.store.ports import ObjectStore, UploadedPart
from coldstream.units import MIB, ByteRange

MIN_PART_BYTES = 5 * MIB
"""S3 refuses smaller parts, except for the last."""

PARTS_AT_ONCE = 3


class PartUpload:
    """Sends parts, PARTS_AT_ONCE at a time, to a key that has no object.

    As a context manager it aborts the upload unless `complete` succeeded. Nobody else knows the upload, so the object
    that it completed is the caller's alone, even if others merge the same fragments. Memory: PARTS_AT_ONCE parts.
    `on_bytes` is called in the caller's thread with the size of each part that was sent, and `note` is the object's
    metadata.
    """

    def __init__(
        self, objects: ObjectStore, key: str, on_bytes: Callable[[int], None], *, note: str | None = None
    ) -> None:
        self._objects = objects
        self._key = key
        self._on_bytes = on_bytes
        self._note = note
        self._parts: list[UploadedPart] = []
        self._is_complete = False

    def __enter__(self) -> Self:
        self._upload_id = self._objects.create_upload(self._key, note=self._note)
        self._pool = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="part")
        self._in_flight: Window[UploadedPart] = Window(self._pool, max_calls=PARTS_AT_ONCE)
        return self

    def __exit__(self, *_: object) -> None:
        # Wait for the parts first: a part that arrives after the abort would stay, and cost.
        self._pool.shutdown(cancel_futures=True)
        if not self._is_complete:
            with suppress(ColdstreamError):  # the bucket's lifecycle rule ends an upload that is left
                self._objects.abort_upload(self._key, self._upload_id)

    def add(self, send: Callable[[int], UploadedPart]) -> None:
        """Send the next part by calling `send` with its number, in a thread.

        Waits while PARTS_AT_ONCE are in flight, and raises what one of those raised.
        """
        while not self._in_flight.has_room():
            self._take()
        # Numbered here and not in the thread: S3 joins the parts by their numbers, whenever they arrive.
        self._in_flight.submit(partial(send, len(self._parts) + len(self._in_flight) + 1))

    def put(self, number: int, data: bytes) -> UploadedPart:
        """Send a part of these bytes."""
        return self._objects.put_part(self._key, self._upload_id, number, data, crc32=crc32(data))

    def copy(self, number: int, source_key: str, byte_range: ByteRange, *, if_match: str) -> UploadedPart:
        """Have the store copy a part from another object."""
        return self._objects.copy_part(source_key, byte_range, self._key, self._upload_id, number, if_match=if_match)

    def settle(self) -> tuple[UploadedPart, ...]:
        """Wait for all parts; return them in order."""
        while len(self._in_flight):
            self._take()
        return tuple(self._parts)

    def complete(self, object_crc32: int) -> None:
        """Make the object of all parts. Raises ObjectExistsError if the key has another object, and BadCrcError.

        S3 refuses an object with another checksum. Other stores may not look at it, so those of the parts are compared
        first, if the store tells those of what it copied.
        """
        parts = self.settle()
        found = combine_all_crc32((part.crc32, part.size_bytes) for part in parts)
        if found not in {None, object_crc32}:
            raise BadCrcError(self._key, 0, "CRC-32 of the object", expected=object_crc32, found=found)
        try:
            self._objects.complete_upload(self._key, self._upload_id, parts, crc32=object_crc32)
        except ConflictError:
            # The client may have sent the request twice: then the first made the object, and the second met it.
            if not self._was_completed(sum(part.size_bytes for part in parts), object_crc32):
                raise
        self._is_complete = True

    def _was_completed(self, size_bytes: int, object_crc32: int) -> bool:
        """Return whether our own upload made the object: it is gone, and the object is what we sent."""
        with suppress(ConflictError):
            self._objects.parts(self._key, self._upload_id)
            return False  # the upload is still open, so somebody else made the object
        info = self._objects.info(self._key)
        return info is not None and (info.size_bytes, info.crc32) == (size_bytes, object_crc32)

    def _take(self) -> None:
        part = self._in_flight.take()
        self._parts.append(part)
        self._on_bytes(part.size_bytes)
