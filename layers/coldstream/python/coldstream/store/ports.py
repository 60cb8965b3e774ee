"""The two ports to AWS: a manifest table and an object store, with everything that coldstream asks of them.

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
    from coldstream.manifest.change import Change  # readers do without it


@dataclass(frozen=True, slots=True)
class LogPage:
    """Consecutive entries of a stream's log, in ascending order.

    `head` is set if the page reached the end of the log: nothing follows the last entry. A page without entries and
    without a head means that the table does not know the stream.
    """

    entries: tuple[FragmentEntry, ...]
    head: Head | None


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Some of the streams of a table; `cursor` continues after them, None if there are no more."""

    streams: tuple[StreamId, ...]
    cursor: str | None


class ManifestReads(Protocol):
    """The read side of the manifest.

    Reads are strongly consistent, except `log_from_timestamp`, and so find the last state of each item, but only item
    by item. While others write a transaction, a Query, or two reads one after the other, may show any part of it, in
    any order: a head that was read first proves nothing about the items beside it. An entry that was seen proves that
    its offsets are archived, for good. Absence has to be proven: by links (`FragmentEntry.prior_offset`), by counts of
    the head, or by the conditions of a change.

    Every method raises UnavailableError, after bounded retries, if the service does not answer.
    """

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head, None for a stream that the table does not know. Cost: one GetItem."""
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

        None if one of them does not exist, or a transaction is just writing one. Cost: one TransactGetItems, at twice
        the price of other reads.
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
        """Yield all losses, then all quarantines, each by first offset. Cost: one Query a page, of thousands."""
        ...

    def missing_before(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return up to `limit` losses or quarantines that begin at or before `offset`, nearest first.

        Cost: one Query.
        """
        ...

    def missing_after(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return up to `limit` losses or quarantines that begin after `offset`, in order. Cost: one Query."""
        ...

    def quarantine(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Quarantine | None:
        """Return the quarantine of the segment of exactly these offsets. Cost: one GetItem."""
        ...

    def tombstones(self, incarnation: Incarnation, due_by: TimestampMs, limit: int) -> tuple[Tombstone, ...]:
        """Return up to `limit` tombstones that are due at or before `due_by`, in that order. Cost: one Query."""
        ...

    def journal(self, incarnation: Incarnation, after_revision: int = 0) -> Iterator[JournalEvent]:
        """Yield the events after a revision, in order. Cost: one Query a page."""
        ...

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream, None if the table has none. Cost: one Query."""
        ...

    def bound_cluster(self, vhost: str, name: str) -> Cluster:
        """Return the cluster that a stream is bound to, NO_CLUSTER if to none. Cost: one GetItem."""
        ...

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return some of the streams, every incarnation of each. Cost: one Query. Raises InvalidQueryError (cursor)."""
        ...

    def grants(self) -> tuple[Grant, ...]:
        """Return all grants. Cost: one Query a page, of thousands."""
        ...


class ManifestTable(ManifestReads, Protocol):
    """The manifest, to read and to write."""

    def apply(self, change: Change) -> None:
        """Write a change as one transaction; a change to revision 1 also registers the stream.

        Raises LostRaceError unless the head and every item that the change writes or requires still has the version
        that was read, and while another transaction is still writing one of them; OutcomeUnknownError if no answer
        came.
        """
        ...

    def bind_cluster(self, vhost: str, name: str, cluster: Cluster) -> Cluster:
        """Bind a stream to a cluster, unless it is bound; return the cluster that it is bound to. Cost: one PutItem.

        If another cluster was first, one GetItem more.
        """
        ...

    def put_grant(self, grant: Grant) -> None:
        """Write a grant, whether or not it exists. Cost: one PUT."""
        ...

    def delete_grant(self, grant: Grant) -> bool:
        """Delete exactly this grant; return whether it existed. Cost: one DELETE."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The answer to a HEAD. `crc32` is that of the whole object, None if the store keeps none."""

    size_bytes: int
    etag: str
    crc32: int | None


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Bytes of an object, and the size and ETag of the whole of it."""

    data: bytes
    object_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part of a multipart upload; parts count from 1. `crc32` is None if the store keeps none."""

    number: int
    size_bytes: int
    crc32: int | None
    etag: str


class ObjectReads(Protocol):
    """The read side of one bucket.

    Every method raises UnavailableError, after bounded retries, if the service does not answer.
    """

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        ...

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range; the bytes end early if the object does. Cost: one GET.

        Raises ObjectNotFoundError, and ReplacedError if the object does not have the ETag `if_match`.
        """
        ...

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Return a URL that grants exactly that range to anybody who sends its `Range` header. No request."""
        ...


class ObjectStore(ObjectReads, Protocol):
    """One bucket, to read and to write."""

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int) -> None:
        """Write an object at a key that has none; the store refuses bytes that are not of that CRC-32. Cost: one PUT.

        The body is a seekable file, which is written whole, from its start. Raises ObjectExistsError if the key is
        taken, CorruptionError if the bytes did not arrive as they were sent, ValueError if they have another size.
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

        Raises ConflictError if the upload is gone.
        """
        ...

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, *, crc32: int) -> UploadedPart:
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
        """Return the size, ETag and CRC-32 of the object at a key, None if there is none. Cost: one HEAD."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order. Cost: one listing a thousand."""
        ...

    def copy(self, source_key: str, target_key: str, *, if_match: str) -> None:
        """Copy an object within the bucket, without its bytes passing here. Cost: one COPY.

        Raises ObjectNotFoundError, and ReplacedError if the source does not have the ETag `if_match`.
        """
        ...

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Delete the object at a key, if there is one. Cost: one DELETE.

        Raises ReplacedError if the object does not have the ETag `if_match`.
        """
        ...
