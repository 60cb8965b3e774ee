"""Objects in S3, by boto3."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from io import SEEK_END, BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError, ResponseStreamingError
from urllib3.exceptions import HTTPError

from coldstream.errors import (
    BadCrcError,
    ColdstreamError,
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplacedError,
    UnavailableError,
)
from coldstream.retry import retrying
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, error_code, from_aws
from coldstream.store.ports import ObjectInfo, RangeRead, UploadedPart
from coldstream.units import ByteRange

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 20
ATTEMPTS = 4
"""Attempts of one request by the SDK (retry mode `standard`: exponential backoff with jitter)."""

MORE_ATTEMPTS = 3
"""Attempts if the SDK does not retry a failure: a body that breaks off, and a PUT that met another on its key."""

_NO_OBJECT = frozenset({"NoSuchKey", "404"})
_ANOTHER_ETAG = frozenset({"PreconditionFailed", "412"})
_ANOTHER_UPLOAD = frozenset({"InvalidPart", "NoSuchUpload"})
_PAST_THE_END = frozenset({"InvalidRange", "416"})


class S3Objects:
    """Implement `ports.ObjectStore` on `bucket`.

    The SDK finds region, credentials and endpoint. Threads may share it; beyond `connections` at a time, each request
    opens and drops a connection. Without the permission s3:ListBucket, S3 answers that a missing object is forbidden.
    """

    def __init__(self, bucket: str, *, connections: int = 10) -> None:
        self._bucket = bucket
        with _border("client of", bucket):
            self._client = _client(connections)

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._bucket

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range into memory, again from its start if the connection breaks.

        A range that begins past the end of the object reads as no bytes, and costs a HEAD beside the GET.
        """
        condition: dict[str, Any] = {} if if_match is None else {"IfMatch": if_match}

        def get() -> RangeRead:
            answer = self._client.get_object(Bucket=self._bucket, Key=key, Range=byte_range.http, **condition)
            with closing(answer["Body"]) as body:
                # A store that ignores `Range` sends the whole object, and `body.read()` would load all of it.
                if "ContentRange" not in answer:
                    raise ColdstreamError(f"GET {key}: this store does not know ranges")
                return _range_read(answer["ContentRange"], answer["ETag"], body.read(), byte_range)

        with _border("GET", key):
            try:
                return _repeat(get)
            except ClientError as err:
                if error_code(err) not in _PAST_THE_END:
                    raise
        return self._past_the_end(key, if_match)

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int) -> None:
        """Write an object from the whole of a seekable file, which is streamed.

        ObjectExistsError may be about this very PUT: its first answer was lost, and the SDK sent it again.
        """
        if (found := body.seek(0, SEEK_END)) != size_bytes:
            raise ValueError(f"PUT {key}: the body has {found} bytes, not {size_bytes}")

        def put() -> None:
            # A failed attempt leaves the file where it broke off, and the next one would send only the rest.
            body.seek(0)
            self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=body,
                ContentLength=size_bytes,
                ChecksumAlgorithm="CRC32",  # the next header implies it; moto needs both
                ChecksumCRC32=_base64(crc32),
                IfNoneMatch="*",
            )

        with _border("PUT", key, is_new=True):
            _repeat(put)

    def uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of the unfinished multipart uploads to a key; one listing."""
        return tuple(upload_id for found, upload_id in self.uploads_under(key) if found == key)

    def uploads_under(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return key and id of the unfinished multipart uploads under a prefix; one listing a thousand of them."""
        with _border("list of the uploads to", prefix):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            return tuple((upload["Key"], upload["UploadId"]) for page in pages for upload in page.get("Uploads", ()))

    def create_upload(self, key: str) -> str:
        """Begin a multipart upload whose checksum is that of the whole object."""
        with _border("new upload to", key):
            return self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT"
            )["UploadId"]

    def parts(self, key: str, upload_id: str) -> tuple[UploadedPart, ...]:
        """Return the parts that an upload has; one listing a thousand of them."""
        with _border("list of the parts of", key):
            pages = self._client.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=upload_id)
            return tuple(
                UploadedPart(part["PartNumber"], part["Size"], _crc32_of(part.get("ChecksumCRC32")), part["ETag"])
                for page in pages
                for part in page.get("Parts", ())
            )

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, *, crc32: int) -> UploadedPart:
        """Write a part."""
        with _border(f"PUT of part {number} of", key):
            answer = self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=BytesIO(data),  # the SDK would copy plain bytes to append them to the headers
                ContentLength=len(data),
                ChecksumAlgorithm="CRC32",
                ChecksumCRC32=_base64(crc32),
            )
        return UploadedPart(number, len(data), crc32, answer["ETag"])

    def copy_part(
        self, source_key: str, byte_range: ByteRange, key: str, upload_id: str, number: int, *, if_match: str
    ) -> UploadedPart:
        """Write a part that is a range of another object; one that S3 copies within READ_TIMEOUT_S."""
        with _border("COPY of a part of", source_key):
            copied = self._client.upload_part_copy(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": self._bucket, "Key": source_key},
                CopySourceRange=byte_range.http,
                CopySourceIfMatch=if_match,
            )["CopyPartResult"]
        return UploadedPart(number, len(byte_range), _crc32_of(copied.get("ChecksumCRC32")), copied["ETag"])

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        """Make the object of these parts.

        ObjectExistsError or ConflictError may be about this very upload: its first answer was lost, and the SDK sent
        the request again. If S3 answers 409, the upload is gone (UnavailableError).
        """
        with _border("completion of", key, is_new=True):
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": [_named(part) for part in parts]},
                ChecksumType="FULL_OBJECT",
                ChecksumCRC32=_base64(crc32),
                IfNoneMatch="*",
            )

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload and its parts."""
        # An upload that is gone was completed or aborted already: aborting twice must not fail.
        with suppress(ConflictError), _border("end of an upload to", key):
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)

    def info(self, key: str) -> ObjectInfo | None:
        """Return the size, ETag and CRC-32 of the object at a key, None if there is none."""
        try:
            with _border("HEAD", key):
                answer = self._client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        except ObjectNotFoundError:
            return None
        return ObjectInfo(answer["ContentLength"], answer["ETag"], _crc32_of(answer.get("ChecksumCRC32")))

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order; one listing a thousand."""
        with _border("list of", prefix):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
                yield from (found["Key"] for found in page.get("Contents", ()))

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object of up to 5 GB within the bucket."""
        with _border("COPY", source_key):
            self._client.copy_object(
                Bucket=self._bucket,
                Key=target_key,
                CopySource={"Bucket": self._bucket, "Key": source_key},
                CopySourceIfMatch=if_match,
            )

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete the object at a key.

        A store that knows no condition of a delete is asked for the ETag first. An object that replaces the old one
        between the two requests is then deleted: whoever staged it finds it gone, and stages it again.
        """
        try:
            with suppress(ObjectNotFoundError), _border("DELETE", key):
                condition: dict[str, Any] = {} if if_match is None else {"IfMatch": if_match}
                self._client.delete_object(Bucket=self._bucket, Key=key, **condition)
        except UnavailableError as err:
            cause = err.__cause__
            if if_match is None or not isinstance(cause, ClientError) or error_code(cause) != "NotImplemented":
                raise
            there = self.info(key)
            if there is not None and there.etag != if_match:
                raise ReplacedError("DELETE", key) from err
            self.delete(key)

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Sign a URL for a range: its `Range` header is among the signed ones. About 0.3 ms."""
        with _border("presigned URL of", key):
            return self._client.generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": key, "Range": byte_range.http},
                ExpiresIn=expires_s,
            )

    def _past_the_end(self, key: str, if_match: str | None) -> RangeRead:
        there = self.info(key)
        if there is None:
            raise ObjectNotFoundError(key)
        # The HEAD had no condition, so a copy that replaced the requested one is told apart only here.
        if if_match not in {None, there.etag}:
            raise ReplacedError("GET", key)
        return RangeRead(b"", there.size_bytes, there.etag)


def _client(connections: int) -> S3Client:
    # Not boto3's default session: the whole process shares that one, and threads must not make clients from it at once.
    session = boto3.session.Session()

    def client(addressing_style: Literal["auto", "virtual"]) -> S3Client:
        s3 = session.client(
            "s3",
            config=Config(
                signature_version="s3v4",
                # We send checksums ourselves: botocore would read every body once more for its own.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"payload_signing_enabled": False, "addressing_style": addressing_style},
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                max_pool_connections=connections,
            ),
        )
        refuse_broken_answers(s3.meta.events)
        return s3

    auto = client("auto")
    if "amazonaws.com" not in auto.meta.endpoint_url:
        # An endpoint of the user's: it may have no host names for buckets, so addresses are path-style.
        return auto
    # On AWS, "auto" presigns URLs of the global endpoint, which redirects requests for a bucket that is new in another
    # region, and a redirect breaks the signature. "virtual" uses the region's endpoint. The second client costs 5 ms.
    return client("virtual")


def _range_read(content_range: str, etag: str, data: bytes, requested: ByteRange) -> RangeRead:
    """Return the answer to a GET. Raises an error of the SDK unless it is the whole of the requested range."""
    total = content_range.rpartition("/")[2]
    # HTTP allows `*` for an unknown size. Zero then fails the comparison below.
    size_bytes = int(total) if total.isdecimal() else 0
    end = min(requested.end, size_bytes)
    if content_range != f"bytes {requested.start}-{end - 1}/{size_bytes}":
        raise ResponseStreamingError(error=f"{content_range} was sent for {requested.http}")
    if len(data) != end - requested.start:
        raise IncompleteReadError(actual_bytes=len(data), expected_bytes=end - requested.start)
    return RangeRead(data, size_bytes, etag)


def _may_pass(err: BaseException) -> bool:
    """Tell whether an error that the SDK does not retry is worth another attempt."""
    if isinstance(err, ClientError):
        return error_code(err) == "ConditionalRequestConflict"
    return isinstance(err, HTTPError | IncompleteReadError | ResponseStreamingError)


_repeat = retrying(_may_pass, attempts=MORE_ATTEMPTS, first_delay_s=0.2, max_delay_s=1)


def _base64(crc32: int) -> str:
    return b64encode(crc32.to_bytes(4, "big")).decode()


def _crc32_of(checksum: str | None) -> int | None:
    # A multipart upload may have a checksum of its parts' checksums, which ends in "-" and their number.
    return None if checksum is None or "-" in checksum else int.from_bytes(b64decode(checksum), "big")


def _named(part: UploadedPart) -> CompletedPartTypeDef:
    named: CompletedPartTypeDef = {"PartNumber": part.number, "ETag": part.etag}
    if part.crc32 is not None:
        named["ChecksumCRC32"] = _base64(part.crc32)
    return named


@contextmanager
def _border(call: str, key: str, *, is_new: bool = False) -> Iterator[None]:
    """Turn the SDK's errors into ours; with `is_new` the call requires that the key has no object."""
    try:
        yield
    except ClientError as err:
        if error_code(err) in _NO_OBJECT:
            raise ObjectNotFoundError(key) from err
        if error_code(err) in _ANOTHER_ETAG:
            if is_new:
                raise ObjectExistsError(key) from err
            raise ReplacedError(call, key) from err
        if error_code(err) in _ANOTHER_UPLOAD:
            raise ConflictError(f"{call} {key}: the upload is gone, or a part of it is another") from err
        if error_code(err) == "BadDigest":
            raise BadCrcError(key, 0, f"{call}: the bytes that arrived are not of the CRC-32 that was sent") from err
        raise from_aws(err, f"{call} {key}") from err
    except SDK_ERRORS as err:
        raise from_aws(err, f"{call} {key}") from err
