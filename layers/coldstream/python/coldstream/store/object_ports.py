"""The port to the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Protocol

from coldstream.store.object_values import (
    BucketCapabilities,
    DeleteReport,
    ListedObject,
    ObjectInfo,
    ObjectVersion,
    RangeRead,
    RestoreState,
    RestoreTier,
    UnfinishedUpload,
    UploadedPart,
)
from coldstream.store.request_body import RequestBody
from coldstream.units import ByteRange, TimestampMs


class RangeStream(Protocol):
    """A range of one object as it arrives. Close it, unless it was read to its end."""

    @property
    def object_bytes(self) -> int:
        """Size of the whole object."""
        ...

    @property
    def etag(self) -> str:
        """The object's ETag. All bytes of the stream are of the object that has it."""
        ...

    def read(self, size_bytes: int) -> bytes:
        """Read so many bytes, fewer only at the end of the range or of the object; none after it.

        Cost: nothing, or a GET for each time that the connection breaks. Raises ReplacedError if the object is another
        by then, ObjectNotFoundError, and UnavailableError after bounded retries.
        """
        ...

    def close(self) -> None:
        """Give up what was not read."""
        ...


class ObjectReads(Protocol):
    """The read side of one bucket.

    Every method raises UnavailableError, after bounded retries, if the service does not answer.
    """

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        ...

    @property
    def clock(self) -> Callable[[], TimestampMs]:
        """AWS's clock, in milliseconds: what must agree with AWS is reckoned by it, and never by the host's.

        It costs a HEAD if this process has heard nothing from AWS yet, and raises UnavailableError if that fails.
        """
        ...

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range; the bytes end early if the object does. Cost: one GET.

        Raises ObjectNotFoundError, ReplacedError if the object does not have the ETag `if_match`, and NotRestoredError
        if it is of an archived class and has to be restored first.
        """
        ...

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Return a URL that grants exactly that range to anybody who sends its `Range` header.

        It is signed by AWS's clock. No request, unless this process has heard nothing from AWS yet: then one HEAD.
        """
        ...


class ObjectStore(ObjectReads, Protocol):
    """One bucket, to read and to write."""

    def get_whole(self, key: str, most_bytes: int) -> bytes:
        """Read a small object whole: its bytes are of the CRC-32 that the store keeps of it, if it keeps one.

        A store tells no checksum with a range: what has none of its own is read by this. Cost: one GET.

        Raises ObjectNotFoundError, BadLengthError if it has more bytes, and BadCrcError if bytes of another checksum
        come again and again.
        """
        ...

    def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
        """Begin to read a range that need not fit into memory. Cost: one GET. Raises what `get_range` raises."""
        ...

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        """Write an object at a key that has none; the store refuses bytes that are not of that CRC-32. Cost: one PUT.

        The body is a seekable file, which is written whole, from its start. `note` is kept as metadata, in ASCII.
        Raises ObjectExistsError if the key is taken, CorruptionError if the bytes did not arrive as they were sent,
        ValueError if they have another size.
        """
        ...

    def uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of the unfinished multipart uploads to exactly this key, oldest first. Cost: one listing."""
        ...

    def uploads_under(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return key and id of each unfinished multipart upload under a prefix. Cost: one listing a thousand."""
        ...

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the unfinished multipart uploads under a prefix, by key. Cost: one listing a thousand."""
        ...

    def create_upload(self, key: str, *, note: str | None = None) -> str:
        """Begin a multipart upload and return its id; the object gets the note as metadata. Cost: one POST."""
        ...

    def parts(self, key: str, upload_id: str) -> tuple[UploadedPart, ...]:
        """Return the parts that an upload has, by number. Cost: one listing a thousand parts.

        Raises ConflictError if the upload is gone.
        """
        ...

    def put_part(self, key: str, upload_id: str, number: int, data: bytes | RequestBody, *, crc32: int) -> UploadedPart:
        """Write a part, over the one of that number; the store refuses bytes that are not of that CRC-32. Cost: a PUT.

        All parts but the last need 5 MiB. Raises ConflictError if the upload is gone, CorruptionError if the bytes did
        not arrive as they were sent.
        """
        ...

    def copy_part(
        self, source_key: str, byte_range: ByteRange, key: str, upload_id: str, number: int, *, if_match: str
    ) -> UploadedPart:
        """Write a part that is a range of another object, without its bytes passing here. Cost: one COPY.

        A part has at most 5 GiB. Raises ObjectNotFoundError if there is no source, ConflictError if the source does not
        have the ETag `if_match` or the upload is gone, ColdstreamError if the source ends before the range.
        """
        ...

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        """Make the object of these parts, in ascending order, at a key that has none. Cost: one POST.

        Parts that are not listed are dropped. `crc32` is that of the whole object. Raises ObjectExistsError if the key
        is taken, ConflictError if one of these parts or the upload is gone, CorruptionError if the object would have
        another CRC-32. After ObjectExistsError and CorruptionError the upload still exists.
        """
        ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload and its parts, if it exists. Cost: one DELETE."""
        ...

    def info(self, key: str) -> ObjectInfo | None:
        """Return what a HEAD says of the object at a key, None if there is none. Cost: one HEAD."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order. Cost: one listing a thousand."""
        ...

    def listed(self, prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        """Yield the objects under a prefix, in order of their keys' bytes, from the first key past `after`.

        Keys are decoded once, and are exactly the object's. Cost: one listing a thousand.
        """
        ...

    def versions(self, prefix: str) -> Iterator[ObjectVersion]:
        """Yield versions and delete markers under a prefix, by key, the newest of each first.

        In a bucket without versions, each object is its only version, `null`. Cost: one listing a thousand.
        """
        ...

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object within the bucket, without its bytes passing here. Cost: one COPY.

        Raises ObjectNotFoundError, and ReplacedError if the source does not have the ETag `if_match`.
        """
        ...

    def delete(self, key: str, *, if_match: str | None = None, signed_at: TimestampMs | None = None) -> None:
        """Delete the object at a key, if there is one; `signed_at` is as for `delete_many`. Cost: one DELETE.

        Raises ReplacedError if the object does not have the ETag `if_match`.
        """
        ...

    def delete_many(self, keys: Sequence[str], *, signed_at: TimestampMs | None = None) -> DeleteReport:
        """Delete the objects at these keys; in a bucket with versions, put a delete marker on each.

        Nothing is deleted later than SIGNATURE_MS after `signed_at`, a time of AWS's, however late the request is
        sent, or arrives: the store then refuses it.

        A key that the store refuses to delete is in the report and raises nothing. Raises UnavailableError if a whole
        request fails, when some keys may be deleted: give a thousand at a time to know which. Cost: one POST a
        thousand, and one DELETE for each key that XML cannot hold.
        """
        ...

    def delete_versions(
        self, versions: Sequence[tuple[str, str]], *, signed_at: TimestampMs | None = None
    ) -> DeleteReport:
        """Delete versions for good, each by key and version id; a delete marker is a version, too.

        What Object Lock protects is in `failed`. `signed_at`, cost and errors are those of `delete_many`.
        """
        ...

    def capabilities(self) -> BucketCapabilities:
        """Return whether the bucket keeps versions, locks objects, and deletes by itself. Cost: three GETs."""
        ...

    def put(self, key: str, body: bytes) -> None:
        """Write an object, over the one at the key: control objects and files of tables, no fragment. Cost: one PUT."""
        ...

    def legal_hold(self, key: str, version_id: str | None = None) -> bool:
        """Tell whether an object, or one version of it, is under a legal hold. Cost: one GET.

        False in a bucket without Object Lock. Raises ObjectNotFoundError.
        """
        ...

    def put_legal_hold(self, key: str, on: bool, version_id: str | None = None) -> None:  # noqa: FBT001  `on` is the value
        """Put an object, or one version of it, under a legal hold, or release it. Cost: one PUT.

        Raises ObjectNotFoundError, and InvalidSettingError in a bucket without Object Lock.
        """
        ...

    def copy_in_class(
        self, source_key: str, target_key: str, storage_class: str | None, *, if_match: str
    ) -> ObjectInfo:
        """Copy an object to a key that has none, into a storage class, and return what a HEAD says of the copy.

        Bytes, CRC-32 and note are those of the source. Cost: two HEADs, two POSTs, and a COPY for each GiB.

        Raises ObjectExistsError if the target is taken, ObjectNotFoundError, ReplacedError if the source does not have
        the ETag `if_match`, and NotRestoredError if its class is archived and it has not been restored.
        """
        ...

    def restore(self, key: str, days: int, tier: RestoreTier) -> None:
        """Have S3 restore an object of an archived class, for a number of days; again to keep it longer. Cost: a POST.

        Does nothing while S3 is restoring it. Raises ObjectNotFoundError, UnavailableError if S3 has no capacity of
        that tier, ColdstreamError if the object is of no archived class.
        """
        ...

    def restore_state(self, key: str) -> RestoreState:
        """Return whether an object can be read, or is being restored. Cost: one HEAD. Raises ObjectNotFoundError."""
        ...
