"""The unfinished multipart uploads of the benchmark's S3 server."""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass, field
from threading import Lock
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from bench.arena import Arena, Body


class NoSuchUploadError(Exception):
    """The upload is not there, or not any more."""


class InvalidPartError(Exception):
    """A part that is to be completed is not there, or another."""


@dataclass(frozen=True, slots=True)
class _Upload:
    path: str
    is_summed_whole: bool
    parts: dict[int, tuple[Body, str]] = field(default_factory=dict)


class Uploads:
    """Uploads by id, and their parts with the ETags that they were given."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._uploads: dict[str, _Upload] = {}
        self._made = itertools.count(1)
        self._lock = Lock()

    def create(self, path: str, *, is_summed_whole: bool) -> str:
        """Begin an upload and return its id; `is_summed_whole`: the object is to have a CRC-32 of the whole."""
        upload_id = f"upload-{next(self._made)}"
        self._uploads[upload_id] = _Upload(path, is_summed_whole)
        return upload_id

    def put(self, path: str, upload_id: str, number: int, body: Body) -> str:
        """Take a part and return its ETag."""
        etag = f'"{next(self._made):032x}"'
        self._get(path, upload_id).parts[number] = body, etag
        return etag

    def list_uploads(self, prefix: str) -> str:
        """Answer a listing of the uploads to paths that begin so, `/bucket/` and all."""
        bucket, _, _ = prefix.removeprefix("/").partition("/")
        listed = "".join(
            f"<Upload><Key>{escape(upload.path.removeprefix(f'/{bucket}/'))}</Key><UploadId>{upload_id}</UploadId></Upload>"
            for upload_id, upload in tuple(self._uploads.items())
            if upload.path.startswith(prefix)
        )
        return f"<ListMultipartUploadsResult>{listed}<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"

    def list_parts(self, path: str, upload_id: str) -> str:
        """Answer a listing of an upload's parts, all on one page."""
        listed = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag><Size>{body.size_bytes}</Size>"
            f"<ChecksumCRC32>{base64_of(body.crc32)}</ChecksumCRC32></Part>"
            for number, (body, etag) in sorted(self._get(path, upload_id).parts.items())
        )
        return f"<ListPartsResult>{listed}<IsTruncated>false</IsTruncated></ListPartsResult>"

    def complete(self, path: str, upload_id: str, request: bytes) -> tuple[Body, str | None]:
        """End an upload: return the whole of the parts that a request names, and its CRC-32 if it is to have one."""
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
        """Forget an upload."""
        self._get(path, upload_id)
        self._uploads.pop(upload_id, None)

    def _get(self, path: str, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.path != path:
            raise NoSuchUploadError
        return upload


def base64_of(crc32: int) -> str:
    """Write a CRC-32 as S3's headers have it."""
    return base64.b64encode(crc32.to_bytes(4, "big")).decode()
