"""Objects in S3, by botocore: reads and writes of single objects, with everything else that the port asks."""

from __future__ import annotations

from contextlib import closing, suppress
from io import SEEK_END
from typing import Any, BinaryIO, cast
from zlib import crc32

from botocore.exceptions import ClientError, IncompleteReadError, ResponseStreamingError

from coldstream.errors import BadLengthError, ColdstreamError, ObjectNotFoundError, ReplacedError, UnavailableError
from coldstream.store.awserrors import error_code
from coldstream.store.bucket import base64_of, border, metadata_of, repeat
from coldstream.store.classes import S3Classes
from coldstream.store.deletes import S3Deletes
from coldstream.store.large_reads import LargeReads
from coldstream.store.locks import S3Locks
from coldstream.store.object_ports import RangeStream
from coldstream.store.object_values import RangeRead
from coldstream.store.range_stream import S3RangeStream, size_of_object
from coldstream.store.read_range import ReadRange
from coldstream.store.signing import signing_as_of
from coldstream.units import ByteRange, TimestampMs

_PAST_THE_END = frozenset({"InvalidRange", "416"})


class S3Objects(S3Classes, S3Deletes, S3Locks):
    """Implement `ports.ObjectStore` on `bucket`.

    The SDK finds region, credentials and endpoint. Threads may share it; beyond `connections` at a time, each request
    opens and drops a connection. Without the permission s3:ListBucket, S3 answers that a missing object is forbidden.
    """

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

        with border("GET", key):
            try:
                return repeat(get)
            except ClientError as err:
                if error_code(err) not in _PAST_THE_END:
                    raise
        return self._past_the_end(key, if_match)

    def get_whole(self, key: str, most_bytes: int) -> bytes:
        """Read a small object, again if the connection breaks or its bytes are not of its checksum, as the SDK sees."""

        def get() -> bytes:
            # S3 tells the checksum of a whole object, and none of a range.
            answer = self._client.get_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
            with closing(answer["Body"]) as body:
                if "ContentLength" not in answer:
                    raise ResponseStreamingError(error="an answer without a length")
                if (size_bytes := answer["ContentLength"]) > most_bytes:
                    raise BadLengthError(key, 0, "bytes", expected=f"at most {most_bytes}", found=size_bytes)
                return body.read()

        with border("GET", key):
            return repeat(get)

    def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
        """Begin to read a range. A range that begins past the end of the object costs a HEAD beside the GET."""

        def get(rest: ByteRange, etag: str | None) -> dict[str, Any]:
            condition: dict[str, Any] = {} if etag is None else {"IfMatch": etag}
            return {**self._client.get_object(Bucket=self._bucket, Key=key, Range=rest.http, **condition)}

        with border("GET", key):
            try:
                return repeat(S3RangeStream, key, byte_range, get, if_match)
            except ClientError as err:
                if error_code(err) not in _PAST_THE_END:
                    raise
        return ReadRange(self._past_the_end(key, if_match))

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
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
                Body=cast("BinaryIO", LargeReads(body)),
                ContentLength=size_bytes,
                ChecksumAlgorithm="CRC32",  # the next header implies it; moto needs both
                ChecksumCRC32=base64_of(crc32),
                IfNoneMatch="*",
                **metadata_of(note),
            )

        with border("PUT", key, is_new=True):
            repeat(put)

    def put(self, key: str, body: bytes) -> None:
        """Write an object, over the one at the key."""
        with border("PUT", key):
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, ChecksumAlgorithm="CRC32", ChecksumCRC32=base64_of(crc32(body))
            )

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object of up to 5 GB within the bucket."""
        with border("COPY", source_key):
            self._client.copy_object(
                Bucket=self._bucket,
                Key=target_key,
                CopySource={"Bucket": self._bucket, "Key": source_key},
                CopySourceIfMatch=if_match,
            )

    def delete(self, key: str, *, if_match: str | None = None, signed_at: TimestampMs | None = None) -> None:
        """Delete the object at a key.

        A store that knows no condition of a delete is asked for the ETag first. An object that replaces the old one
        between the two requests is then deleted: whoever staged it finds it gone, and stages it again.
        """
        try:
            with suppress(ObjectNotFoundError), border("DELETE", key), signing_as_of(signed_at):
                condition: dict[str, Any] = {} if if_match is None else {"IfMatch": if_match}
                self._client.delete_object(Bucket=self._bucket, Key=key, **condition)
        except UnavailableError as err:
            cause = err.__cause__
            if if_match is None or not isinstance(cause, ClientError) or error_code(cause) != "NotImplemented":
                raise
            there = self.info(key)
            if there is not None and there.etag != if_match:
                raise ReplacedError("DELETE", key) from err
            self.delete(key, signed_at=signed_at)

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Sign a URL for a range: its `Range` header is among the signed ones. About 0.3 ms."""
        self.clock()  # something must have been heard before `presigning` signs by it
        with border("presigned URL of", key):
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


def _range_read(content_range: str, etag: str, data: bytes, requested: ByteRange) -> RangeRead:
    """Return the answer to a GET. Raises an error of the SDK unless it is the whole of the requested range."""
    size_bytes = size_of_object(content_range, requested)
    end = min(requested.end, size_bytes)
    if len(data) != end - requested.start:
        raise IncompleteReadError(actual_bytes=len(data), expected_bytes=end - requested.start)
    return RangeRead(data, size_bytes, etag)
