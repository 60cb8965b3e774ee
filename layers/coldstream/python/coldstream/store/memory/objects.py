"""The in-memory double of the bucket.

It keeps the rules of the real one: conditions, checksums, multipart uploads, versions, legal holds, archived classes.
`requests` counts the requests that the real one would have sent, by the name of the AWS call. To make a call fail,
subclass it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO
from urllib.parse import quote

from coldstream.errors import BadLengthError, ObjectNotFoundError
from coldstream.store.memory.bucket import check_crc32
from coldstream.store.memory.uploads import MemoryUploads
from coldstream.store.memory.versions import MemoryVersions, info_of
from coldstream.store.object_ports import RangeStream
from coldstream.store.object_values import ObjectInfo, RangeRead
from coldstream.store.read_range import ReadRange
from coldstream.units import ByteRange, TimestampMs


class MemoryObjects(MemoryUploads, MemoryVersions):
    """Implement `ports.ObjectStore` in memory.

    Tell it to be `versioned`, or to have `object_lock`, which needs versions; `clock` is AWS's.
    """

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range."""
        found = self._read("GetObject", key, if_match)
        data = found.data or b""
        return RangeRead(data[byte_range.start : byte_range.end], len(data), found.etag)

    def get_whole(self, key: str, most_bytes: int) -> bytes:
        """Read a small object; a subclass that makes `get_range` fail makes this fail, too."""
        found = self.get_range(key, ByteRange(0, most_bytes))
        if found.object_bytes > most_bytes:
            raise BadLengthError(key, 0, "bytes", expected=f"at most {most_bytes}", found=found.object_bytes)
        return found.data

    def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
        """Read a range at once; a subclass that makes `get_range` fail makes this fail, too."""
        return ReadRange(self.get_range(key, byte_range, if_match=if_match))

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        """Write an object from the whole of a seekable file."""
        body.seek(0)
        data = body.read()
        if len(data) != size_bytes:
            raise ValueError(f"PUT {key}: the body has {len(data)} bytes, not {size_bytes}")
        self._count("PutObject")
        check_crc32(key, data, crc32)
        self._write_new(key, data, note=note)

    def put(self, key: str, body: bytes) -> None:
        """Write an object, over the one at the key."""
        self._count("PutObject")
        self._write(key, body)

    def info(self, key: str) -> ObjectInfo | None:
        """Return what a HEAD says of the object at a key."""
        try:
            return info_of(self._read("HeadObject", key, None, bytes_too=False))
        except ObjectNotFoundError:
            return None

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order."""
        self._count("ListObjectsV2")
        yield from sorted(key for key in tuple(self.objects) if key.startswith(prefix))

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object."""
        self._write(target_key, self._read("CopyObject", source_key, if_match).data or b"")

    def delete(self, key: str, *, if_match: str | None = None, signed_at: TimestampMs | None = None) -> None:
        """Delete the object at a key."""
        with suppress(ObjectNotFoundError):
            self._read("DeleteObject", key, if_match, bytes_too=False)
        self._check_signature(signed_at)
        self._remove(key)

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Return a URL that shows what it would grant; nothing serves it."""
        return f"memory://{self._bucket}/{quote(key)}?range={byte_range.http}&expires={expires_s}"
