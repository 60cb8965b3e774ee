"""The unfinished multipart uploads of the benchmark's S3 server."""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass, field
from threading import Lock
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from bench.s3_bodies import Arena, Body


class NoSuchUploadError(Exception):
    """There is no such upload, or it has ended."""


class InvalidPartError(Exception):
    """A part that the completion names is missing, or has another ETag."""


@dataclass(frozen=True, slots=True)
class _StoredUpload:
    path: str
    is_summed_whole: bool
    parts: dict[int, tuple[Body, str]] = field(default_factory=dict)


class Uploads:
    """The uploads by id, and their parts with their ETags."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._uploads: dict[str, _StoredUpload] = {}
        self._numbers = itertools.count(1)
        self._lock = Lock()

    def create(self, path: str, *, is_summed_whole: bool) -> str:
        """Begin an upload and return its id. `is_summed_whole`: the object gets a CRC-32 of all its bytes."""
        upload_id = f"upload-{next(self._numbers)}"
        self._uploads[upload_id] = _StoredUpload(path, is_summed_whole)
        return upload_id

    def put(self, path: str, upload_id: str, number: int, body: Body) -> str:
        """Store a part and return its ETag."""
        etag = f'"{next(self._numbers):032x}"'
        self._get(path, upload_id).parts[number] = body, etag
        return etag

    def list_uploads(self, prefix: str) -> str:
        """Return the listing of uploads whose paths, `/bucket/` included, begin with `prefix`."""
        bucket, _, _ = prefix.removeprefix("/").partition("/")
        listed = "".join(
            f"<Upload><Key>{escape(upload.path.removeprefix(f'/{bucket}/'))}</Key><UploadId>{upload_id}</UploadId></Upload>"
            for upload_id, upload in tuple(self._uploads.items())
            if upload.path.startswith(prefix)
        )
        return f"<ListMultipartUploadsResult>{listed}<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"

    def list_parts(self, path: str, upload_id: str) -> str:
        """Return the listing of an upload's parts, all on one page."""
        listed = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag><Size>{body.size_bytes}</Size>"
            f"<ChecksumCRC32>{base64_of(body.crc32)}</ChecksumCRC32></Part>"
            for number, (body, etag) in sorted(self._get(path, upload_id).parts.items())
        )
        return f"<ListPartsResult>{listed}<IsTruncated>false</IsTruncated></ListPartsResult>"

    def complete(self, path: str, upload_id: str, request: bytes) -> tuple[Body, str | None]:
        """End an upload. Return the body of the parts that the request names, and its CRC-32 if it gets one."""
        with self._lock:
            upload = self._get(path, upload_id)
            bodies: list[Body] = []
            for named in ET.fromstring(request).iterfind("{*}Part"):  # noqa: S314  our own clients' requests
                body, etag = upload.parts.get(int(named.findtext("{*}PartNumber", "0")), (None, ""))
                if body is None or named.findtext("{*}ETag") != etag:
                    raise InvalidPartError
                bodies.append(body)
            del self._uploads[upload_id]
        whole = Body(self._arena)
        for body in bodies:
            whole.take_over(body)
        return whole, base64_of(whole.crc32) if upload.is_summed_whole else None

    def abort(self, path: str, upload_id: str) -> None:
        """Drop an upload."""
        self._get(path, upload_id)
        self._uploads.pop(upload_id, None)

    def _get(self, path: str, upload_id: str) -> _StoredUpload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.path != path:
            raise NoSuchUploadError
        return upload


def base64_of(crc32: int) -> str:
    """Return a CRC-32 in the form of S3's headers."""
    return base64.b64encode(crc32.to_bytes(4, "big")).decode()
