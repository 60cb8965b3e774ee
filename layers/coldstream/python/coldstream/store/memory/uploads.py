"""The multipart uploads of the in-memory bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32 as crc32_of

from coldstream.errors import ColdstreamError, ConflictError
from coldstream.store.memory.bucket import MemoryBucket, check_crc32, etag_of
from coldstream.store.object_values import UnfinishedUpload, UploadedPart
from coldstream.store.request_body import RequestBody
from coldstream.units import ByteRange, TimestampMs


@dataclass(frozen=True, slots=True)
class _Upload:
    """An unfinished multipart upload, with its parts and their bytes by number."""

    key: str
    initiated_at: TimestampMs
    note: str | None = None
    parts: dict[int, tuple[UploadedPart, bytes]] = field(default_factory=dict)


class MemoryUploads(MemoryBucket):
    """Implement the multipart uploads of `ports.ObjectStore`."""

    def __init__(self, bucket: str = "memory", **options: Any) -> None:
        super().__init__(bucket, **options)
        self._uploads: dict[str, _Upload] = {}

    def uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of the unfinished multipart uploads to a key."""
        return tuple(upload_id for found, upload_id in self.uploads_under(key) if found == key)

    def uploads_under(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return key and id of the unfinished multipart uploads under a prefix."""
        self._count("ListMultipartUploads")
        uploads = tuple(self._uploads.items())  # a copy: threads may add uploads meanwhile
        return tuple((upload.key, upload_id) for upload_id, upload in uploads if upload.key.startswith(prefix))

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the unfinished multipart uploads under a prefix."""
        found = sorted(self.uploads_under(prefix))
        for key, upload_id in found:
            initiated_at = TimestampMs(self._uploads[upload_id].initiated_at // 1000 * 1000)  # S3 lists whole seconds
            yield UnfinishedUpload(key, upload_id, initiated_at)

    def create_upload(self, key: str, *, note: str | None = None) -> str:
        """Begin a multipart upload."""
        self._count("CreateMultipartUpload")
        with self._lock:
            upload_id = f"upload-{self.requests['CreateMultipartUpload']}"
            self._uploads[upload_id] = _Upload(key, self.clock(), note)
        return upload_id

    def parts(self, key: str, upload_id: str) -> tuple[UploadedPart, ...]:
        """Return the parts that an upload has."""
        self._count("ListParts")
        with self._lock:
            return tuple(part for _, (part, _) in sorted(self._upload(key, upload_id).parts.items()))

    def put_part(self, key: str, upload_id: str, number: int, data: bytes | RequestBody, *, crc32: int) -> UploadedPart:
        """Write a part."""
        self._count("UploadPart")
        data = bytes(data)
        check_crc32(key, data, crc32)
        part = UploadedPart(number, len(data), crc32, etag_of(data))
        with self._lock:
            self._upload(key, upload_id).parts[number] = part, data
        return part

    def copy_part(
        self, source_key: str, byte_range: ByteRange, key: str, upload_id: str, number: int, *, if_match: str
    ) -> UploadedPart:
        """Write a part that is a range of another object."""
        source = self._read("UploadPartCopy", source_key, if_match).data or b""
        if byte_range.end > len(source):
            raise ColdstreamError(f"COPY {source_key}: {byte_range.http} of {len(source)} bytes")
        data = source[byte_range.start : byte_range.end]
        part = UploadedPart(number, len(data), crc32_of(data), etag_of(data))
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
            check_crc32(key, data, crc32)
            self._write_new(key, data, note=self._upload(key, upload_id).note)
            del self._uploads[upload_id]

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload."""
        self._count("AbortMultipartUpload")
        with self._lock, suppress(ConflictError):
            self._upload(key, upload_id)
            del self._uploads[upload_id]

    def _upload(self, key: str, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise ConflictError(f"{key}: the upload is gone")
        return upload
