"""What coldstream wants of a manifest table and of an object store: the two ports to AWS.

Each has an implementation on AWS (`table`, `objects`) and an in-memory double (`memory`); tests/store holds one
contract suite that runs on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalEvent, Missing, Quarantine, Tombstone
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ByteRange, Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.manifest.change import Change  # what only reads has no use for it


@dataclass(frozen=True, slots=True)
class LogPage:
    """Consecutive entries of a stream's log, in ascending order.

    `head` is there when the page reached the end of the log: nothing follows the last entry. A page without entries
    and without a head is that of a stream the table does not know.
    """

    entries: tuple[FragmentEntry, ...]
    head: Head | None


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Some of the streams of a table; `cursor` asks for those after them, None when there are no more."""

    streams: tuple[StreamId, ...]
    cursor: str | None


class ManifestReads(Protocol):
    """The manifest, to read.

    Reads are strongly consistent, except `log_from_timestamp`, and so find the last state of each item; but only of
    each. Of a transaction that others are writing a Query, or two reads one after the other, may show any part, in any
    order: having read the head first proves nothing of items beside it. What is seen to be archived is, for good; that
    something is missing has to be proven, by links (`FragmentEntry.prior_offset`), by counts of the head, or by the
    conditions of a change.

    Every method raises UnavailableError, after bounded retries, when the service does not answer.
    """

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head, None for a stream the table does not know. Cost: one GetItem."""
        ...

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        """Return up to `limit` entries whose next offset is past `offset`: the one that holds it comes first.

        Cost: one Query, at any size of the stream.
        """
        ...

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        """Return up to `limit` entries whose running timestamp is at or after `timestamp`, from the index by time.

        Cost: one Query. The index lags behind the table, entry by entry: check the first entry's links.
        """
        ...

    def log_end(self, incarnation: Incarnation, limit: int) -> LogPage:
        """Return the last entries, up to `limit`, and the head. Cost: one Query."""
        ...

    def log_at_once(self, incarnation: Incarnation, next_offsets: Sequence[Offset]) -> LogPage | None:
        """Return the entries that end at these offsets, up to 99, and the head, all as they are at one moment.

        None where one of them is not there, or a change of one is just being written. Cost: one TransactGetItems, at
        twice the price of reading them otherwise.
        """
        ...

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        """Return up to `limit` entries whose next offset is at or below `offset`, nearest first. Cost: one Query."""
        ...

    def gap(self, incarnation: Incarnation, first_offset: Offset) -> Gap | None:
        """Return the gap that begins at `first_offset`. Cost: one GetItem."""
        ...

    def gaps(
        self,
        incarnation: Incarnation,
        limit: int,
        *,
        from_offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
    ) -> tuple[Gap, ...]:
        """Return the first `limit` gaps that begin at or after `from_offset`, in order. Cost: one Query."""
        ...

    def gaps_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[Gap, ...]:
        """Return up to `limit` gaps that begin before `offset`, nearest first. Cost: one Query."""
        ...

    def missing(self, incarnation: Incarnation) -> Iterator[Missing]:
        """Yield what is known to be missing, losses first, by first offset. Cost: one Query a page, of thousands."""
        ...

    def missing_before(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return up to `limit` of one kind of what is missing that begin at or before `offset`, nearest first.

        Cost: one Query.
        """
        ...

    def missing_after(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return up to `limit` of one kind of what is missing that begin after `offset`, in order. Cost: one Query."""
        ...

    def quarantine(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Quarantine | None:
        """Return what is said of the segment of exactly these offsets in quarantine. Cost: one GetItem."""
        ...

    def tombstones(self, incarnation: Incarnation, due_by: TimestampMs, limit: int) -> tuple[Tombstone, ...]:
        """Return up to `limit` tombstones that are due at or before `due_by`, in that order. Cost: one Query."""
        ...

    def journal(self, incarnation: Incarnation, after_revision: int = 0) -> Iterator[JournalEvent]:
        """Yield the events after a revision, in order. Cost: one Query a page."""
        ...

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream, None when it has none here. Cost: one Query."""
        ...

    def bound_cluster(self, vhost: str, name: str) -> Cluster:
        """Return the cluster that a stream is bound to, NO_CLUSTER when it is to none. Cost: one GetItem."""
        ...

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return some of the streams, every incarnation of each. Cost: one Query. Raises InvalidQueryError (cursor)."""
        ...

    def grants(self) -> tuple[Grant, ...]:
        """Return who may read what. Cost: one Query a page, of thousands."""
        ...


class ManifestTable(ManifestReads, Protocol):
    """The manifest."""

    def apply(self, change: Change) -> None:
        """Write a change as one transaction; a change to revision 1 also registers the stream.

        Raises LostRaceError when anything is not as the change says that it was read: the head's revision, and each
        entry, gap, missing segment and tombstone that it writes or relies on; also while another transaction is still
        writing one of them. OutcomeUnknownError when no answer came.
        """
        ...

    def bind_cluster(self, vhost: str, name: str, cluster: Cluster) -> Cluster:
        """Bind a stream to a cluster, unless it is bound; return the one that it is bound to then. Cost: one PutItem.

        Where another was first, one GetItem more.
        """
        ...

    def put_grant(self, grant: Grant) -> None:
        """Let somebody read something, if nothing is said of these two yet, or say it again. Cost: one PUT."""
        ...

    def delete_grant(self, grant: Grant) -> bool:
        """Take back what exactly that grant says; return whether it was there. Cost: one DELETE."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a HEAD says of an object. `crc32` is that of the whole object, None where the store keeps none."""

    size_bytes: int
    etag: str
    crc32: int | None


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Bytes of an object, and what the store said of the whole of it."""

    data: bytes
    object_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part of a multipart upload; parts count from 1. `crc32` is None where the store keeps none."""

    number: int
    size_bytes: int
    crc32: int | None
    etag: str


class ObjectReads(Protocol):
    """The objects of one bucket, to read.

    Every method raises UnavailableError, after bounded retries, when the service does not answer.
    """

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        ...

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range; the bytes end early where the object does. Cost: one GET.

        Raises ObjectNotFoundError, and ReplacedError when the object is not the one of the ETag `if_match`.
        """
        ...

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Return a URL that grants exactly that range of that object to who sends its `Range` header. No request."""
        ...


class ObjectStore(ObjectReads, Protocol):
    """The objects of one bucket."""

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int) -> None:
        """Write an object at a key that has none; the store refuses bytes that are not of that CRC-32. Cost: one PUT.

        The body is a seekable file, which is written whole, from its start. Raises ObjectExistsError when the key is
        taken, CorruptionError when the bytes did not arrive as they were sent, ValueError when they are not of that
        size.
        """
        ...

    def uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of the unfinished multipart uploads to exactly this key, oldest first. Cost: one listing."""
        ...

    def uploads_under(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return key and id of each unfinished multipart upload under a prefix. Cost: one listing a thousand."""
        ...

    def create_upload(self, key: str) -> str:
        """Begin a multipart upload and return its id. Cost: one POST."""
        ...

    def parts(self, key: str, upload_id: str) -> tuple[UploadedPart, ...]:
        """Return the parts that an upload has, by number. Cost: one listing a thousand parts.

        Raises ConflictError when there is no such upload any more.
        """
        ...

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, *, crc32: int) -> UploadedPart:
        """Write a part, over the one of that number; the store refuses bytes that are not of that CRC-32. Cost: a PUT.

        All parts but the last need 5 MiB. Raises ConflictError when there is no such upload any more, CorruptionError
        when the bytes did not arrive as they were sent.
        """
        ...

    def copy_part(
        self, source_key: str, byte_range: ByteRange, key: str, upload_id: str, number: int, *, if_match: str
    ) -> UploadedPart:
        """Write a part that is a range of another object, without its bytes passing here. Cost: one COPY.

        The part has up to 5 GiB. Raises ObjectNotFoundError when there is no source, ConflictError when it is not the
        one of the ETag `if_match` or there is no such upload any more, ColdstreamError when it ends before the range.
        """
        ...

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        """Make the object of these parts, in ascending order, at a key that has none. Cost: one POST.

        Parts that are not named are dropped. `crc32` is of the whole object. Raises ObjectExistsError when the key is
        taken, ConflictError when one of these parts, or the upload, is not there any more, CorruptionError when the
        object would not be of that CRC-32. After ObjectExistsError and CorruptionError the upload is still there.
        """
        ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload and its parts; there being none is fine. Cost: one DELETE."""
        ...

    def info(self, key: str) -> ObjectInfo | None:
        """Return what is at a key, None when nothing is. Cost: one HEAD."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order. Cost: one listing a thousand."""
        ...

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object within the bucket, without its bytes passing here. Cost: one COPY.

        Raises ObjectNotFoundError, and ReplacedError when the source is not the one of the ETag `if_match`.
        """
        ...

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete what is at a key; nothing being there is fine. Cost: one DELETE.

        Raises ReplacedError when the object is not the one of the ETag `if_match`.
        """
        ...
