"""Multipart uploads to S3."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

from coldstream.errors import ConflictError
from coldstream.store.bucket import base64_of, border, crc32_of, metadata_of
from coldstream.store.listings import S3Listings
from coldstream.store.object_values import UploadedPart
from coldstream.store.request_body import RequestBody
from coldstream.units import ByteRange

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef


class S3Uploads(S3Listings):
    """Implement the multipart uploads of `ports.ObjectStore`."""

    def uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of the unfinished multipart uploads to a key; one listing."""
        return tuple(upload_id for found, upload_id in self.uploads_under(key) if found == key)

    def uploads_under(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return key and id of the unfinished multipart uploads under a prefix; one listing a thousand of them."""
        return tuple((found.key, found.upload_id) for found in self.unfinished_uploads(prefix))

    def create_upload(self, key: str, *, note: str | None = None) -> str:
        """Begin a multipart upload whose checksum is that of the whole object."""
        with border("new upload to", key):
            return self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT", **metadata_of(note)
            )["UploadId"]

    def parts(self, key: str, upload_id: str) -> tuple[UploadedPart, ...]:
        """Return the parts that an upload has; one listing a thousand of them."""
        with border("list of the parts of", key):
            pages = self._client.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=upload_id)
            return tuple(
                UploadedPart(part["PartNumber"], part["Size"], crc32_of(part.get("ChecksumCRC32")), part["ETag"])
                for page in pages
                for part in page.get("Parts", ())
            )

    def put_part(self, key: str, upload_id: str, number: int, data: bytes | RequestBody, *, crc32: int) -> UploadedPart:
        """Write a part."""
        with border(f"PUT of part {number} of", key):
            answer = self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                # The SDK would copy plain bytes to append them to the headers.
                Body=BytesIO(data) if isinstance(data, bytes) else data,  # type: ignore[arg-type]
                ContentLength=len(data),
                ChecksumAlgorithm="CRC32",
                ChecksumCRC32=base64_of(crc32),
            )
        return UploadedPart(number, len(data), crc32, answer["ETag"])

    def copy_part(
        self, source_key: str, byte_range: ByteRange, key: str, upload_id: str, number: int, *, if_match: str
    ) -> UploadedPart:
        """Write a part that is a range of another object; one that S3 copies within READ_TIMEOUT_S."""
        with border("COPY of a part of", source_key):
            copied = self._client.upload_part_copy(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": self._bucket, "Key": source_key},
                CopySourceRange=byte_range.http,
                CopySourceIfMatch=if_match,
            )["CopyPartResult"]
        return UploadedPart(number, len(byte_range), crc32_of(copied.get("ChecksumCRC32")), copied["ETag"])

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        """Make the object of these parts.

        ObjectExistsError or ConflictError may be about this very upload: its first answer was lost, and the SDK sent
        the request again. If S3 answers 409, the upload is gone (UnavailableError).
        """
        with border("completion of", key, is_new=True):
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": [named_part(part) for part in parts]},
                ChecksumType="FULL_OBJECT",
                ChecksumCRC32=base64_of(crc32),
                IfNoneMatch="*",
            )

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload and its parts."""
        # An upload that is gone was completed or aborted already: aborting twice must not fail.
        with suppress(ConflictError), border("end of an upload to", key):
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)


def named_part(part: UploadedPart) -> CompletedPartTypeDef:
    """Name a part in the request that completes its upload."""
    named: CompletedPartTypeDef = {"PartNumber": part.number, "ETag": part.etag}
    if part.crc32 is not None:
        named["ChecksumCRC32"] = base64_of(part.crc32)
    return named
