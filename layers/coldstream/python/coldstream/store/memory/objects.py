"""The in-memory double of the bucket.

It keeps the rules of the real one: conditions, checksums, multipart uploads. `requests` counts the requests that the
real one would have sent, by the name of the AWS call. To make a call fail, subclass it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import BinaryIO
from urllib.parse import quote
from zlib import crc32 as crc32_of

from coldstream.errors import (
    BadCrcError,
    ColdstreamError,
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplacedError,
)
from coldstream.store.ports import ObjectInfo, RangeRead, UploadedPart
from coldstream.units import ByteRange


@dataclass(frozen=True, slots=True)
class _Upload:
    """An unfinished multipart upload, with its parts and their bytes by number."""

    key: str
    parts: dict[int, tuple[UploadedPart, bytes]] = field(default_factory=dict)


class MemoryObjects:
    """Implement `ports.ObjectStore` in memory."""

    def __init__(self, bucket: str = "memory") -> None:
        self.requests: Counter[str] = Counter()
        self.objects: dict[str, bytes] = {}
        self._uploads: dict[str, _Upload] = {}
        self._bucket = bucket
        self._lock = Lock()

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._bucket

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range."""
        data, etag = self._read("GetObject", key, if_match)
        return RangeRead(data[byte_range.start : byte_range.end], len(data), etag)

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int) -> None:
        """Write an object from the whole of a seekable file."""
        body.seek(0)
        data = body.read()
        if len(data) != size_bytes:
            raise ValueError(f"PUT {key}: the body has {len(data)} bytes, not {size_bytes}")
        self._count("PutObject")
        _check_crc32(key, data, crc32)
        with self._lock:
            # Under the lock, as S3 does it: of two writers of one key, only one may find it free.
            self._put_new(key, data)

    def uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of the unfinished multipart uploads to a key."""
        return tuple(upload_id for found, upload_id in self.uploads_under(key) if found == key)

    def uploads_under(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return key and id of the unfinished multipart uploads under a prefix."""
        self._count("ListMultipartUploads")
        uploads = tuple(self._uploads.items())  # a copy: threads may add uploads meanwhile
        return tuple((upload.key, upload_id) for upload_id, upload in uploads if upload.key.startswith(prefix))

    def create_upload(self, key: str) -> str:
        """Begin a multipart upload."""
        self._count("CreateMultipartUpload")
        with self._lock:
            upload_id = f"upload-{self.requests['CreateMultipartUpload']}"
            self._uploads[upload_id] = _Upload(key)
        return upload_id

    def parts(self, key: str, upload_id: str) -> tuple[UploadedPart, ...]:
        """Return the parts that an upload has."""
        self._count("ListParts")
        with self._lock:
            return tuple(part for _, (part, _) in sorted(self._upload(key, upload_id).parts.items()))

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, *, crc32: int) -> UploadedPart:
        """Write a part."""
        self._count("UploadPart")
        _check_crc32(key, data, crc32)
        part = UploadedPart(number, len(data), crc32, _etag(data))
        with self._lock:
            self._upload(key, upload_id).parts[number] = part, data
        return part

    def copy_part(
        self, source_key: str, byte_range: ByteRange, key: str, upload_id: str, number: int, *, if_match: str
    ) -> UploadedPart:
        """Write a part that is a range of another object."""
        source, _ = self._read("UploadPartCopy", source_key, if_match)
        if byte_range.end > len(source):
            raise ColdstreamError(f"COPY {source_key}: {byte_range.http} of {len(source)} bytes")
        data = source[byte_range.start : byte_range.end]
        part = UploadedPart(number, len(data), crc32_of(data), _etag(data))
        with self._lock:
            self._upload(key, upload_id).parts[number] = part, data
        return part

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        """Make the object of these parts."""
        self._count("CompleteMultipartUpload")
        with self._lock:
            there = self._upload(key, upload_id).parts
            if any(part.number not in there or there[part.number][0].etag != part.etag for part in parts):
                raise ConflictError(f"completion of {key}: a part is another")
            data = b"".join(there[part.number][1] for part in parts)
            _check_crc32(key, data, crc32)
            self._put_new(key, data)
            del self._uploads[upload_id]

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload."""
        self._count("AbortMultipartUpload")
        with self._lock, suppress(ConflictError):
            self._upload(key, upload_id)
            del self._uploads[upload_id]

    def info(self, key: str) -> ObjectInfo | None:
        """Return the size, ETag and CRC-32 of the object at a key."""
        try:
            data, etag = self._read("HeadObject", key, None)
        except ObjectNotFoundError:
            return None
        return ObjectInfo(len(data), etag, crc32_of(data))

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order."""
        self._count("ListObjectsV2")
        yield from sorted(key for key in tuple(self.objects) if key.startswith(prefix))

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object."""
        data, _ = self._read("CopyObject", source_key, if_match)
        self.objects[target_key] = data

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete the object at a key."""
        with suppress(ObjectNotFoundError):
            self._read("DeleteObject", key, if_match)
        self.objects.pop(key, None)

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Return a URL that shows what it would grant; nothing serves it."""
        return f"memory://{self._bucket}/{quote(key)}?range={byte_range.http}&expires={expires_s}"

    def _put_new(self, key: str, data: bytes) -> None:
        if key in self.objects:
            raise ObjectExistsError(key)
        self.objects[key] = data

    def _upload(self, key: str, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise ConflictError(f"{key}: the upload is gone")
        return upload

    def _read(self, call: str, key: str, if_match: str | None) -> tuple[bytes, str]:
        self._count(call)
        try:
            data = self.objects[key]
        except KeyError:
            raise ObjectNotFoundError(key) from None
        etag = _etag(data)
        if if_match not in {None, etag}:
            raise ReplacedError(call, key)
        return data, etag

    def _count(self, call: str) -> None:
        with self._lock:
            self.requests[call] += 1


def _etag(data: bytes) -> str:
    return f'"{sha256(data).hexdigest()[:32]}"'


def _check_crc32(key: str, data: bytes, crc32: int) -> None:
    if (found := crc32_of(data)) != crc32:
        raise BadCrcError(key, 0, "CRC-32 of the bytes sent", expected=f"{crc32:08x}", found=f"{found:08x}")
