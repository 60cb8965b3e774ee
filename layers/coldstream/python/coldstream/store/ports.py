"""The two ports to AWS: a manifest table and an object store, with everything that coldstream asks of them.

Each has an implementation on AWS (`table`, `objects`) and an in-memory double (`memory`); tests/store holds one
contract suite that runs on all of them. The port to the bucket is in `object_ports`. The values that pass through the
ports are in `manifest_values` and `object_values`. Import all of them from here, except in what a resolver loads before
its first answer: that imports the ports for type checkers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import (
    Erasure,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    Missing,
    Quarantine,
    Row,
    Tombstone,
)
from coldstream.manifest.policy import Policy
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation
from coldstream.store.manifest_values import LogPage, StreamOverview, StreamPage
from coldstream.store.object_ports import ObjectReads, ObjectStore, RangeStream
from coldstream.store.object_values import (
    BucketCapabilities,
    DeleteFailure,
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
from coldstream.units import Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.manifest.change import Change  # readers do without it

__all__ = [
    "BucketCapabilities",
    "DeleteFailure",
    "DeleteReport",
    "ListedObject",
    "LogPage",
    "ManifestReads",
    "ManifestTable",
    "ObjectInfo",
    "ObjectReads",
    "ObjectStore",
    "ObjectVersion",
    "RangeRead",
    "RangeStream",
    "RestoreState",
    "RestoreTier",
    "StreamOverview",
    "StreamPage",
    "UnfinishedUpload",
    "UploadedPart",
]


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

    def heads(self, incarnations: Sequence[Incarnation]) -> Mapping[Incarnation, Head]:
        """Return the heads of up to 100 streams; those that the table does not know are left out.

        Each is the last state of its item, but they are not of one moment. Cost: one BatchGetItem, at the price of a
        GetItem for each; another one if DynamoDB left some out, after a pause.
        """
        ...

    def overview(self, incarnation: Incarnation, *, page_items: int | None = None) -> StreamOverview:
        """Return the head, gaps, losses, quarantines and holds, up to a megabyte of gaps and holds, and of the others.

        The counts of the head tell whether they are of one moment. `page_items`, for tests, ends a page sooner. Cost:
        two Queries, at any size of the stream.
        """
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

    def items_at_once(self, incarnation: Incarnation, keys: Sequence[str]) -> Mapping[str, Row] | None:
        """Return the items of these sort keys, up to 100, by key and as they are at one moment; absent are left out.

        So what is left out does not exist at that moment. None if a transaction is just writing one of them. Cost: one
        TransactGetItems, at twice the price of other reads.
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

    def journal(
        self, incarnation: Incarnation, after_revision: int = 0, *, page_items: int | None = None
    ) -> Iterator[JournalEvent]:
        """Yield the events after a revision, in order. Cost: one Query a page.

        `page_items` are read at a time, else a megabyte: whoever takes only the first few pays for no others.
        """
        ...

    def recorded_changes(
        self, incarnation: Incarnation, after_revision: int = 0, *, page_items: int | None = None
    ) -> Iterator[tuple[JournalEvent, Change]]:
        """Yield the events after a revision, in order, each with its change: `manifest.state.replay` applies them.

        `page_items` as in `journal`. Cost: one GetItem, and one Query a page. Raises NotRecordedError if an earlier
        release wrote one of them, once it has found the first that is recorded.
        """
        ...

    def holds(self, incarnation: Incarnation) -> tuple[Hold, ...]:
        """Return all holds, by id. Incomplete while `Head.holds` counts another number. Cost: one Query a page."""
        ...

    def erasures(self, incarnation: Incarnation) -> tuple[Erasure, ...]:
        """Return all erasures, by id. Cost: one Query a page."""
        ...

    def rows(
        self, incarnation: Incarnation, kind: str = "", *, after: str = "", page_items: int | None = None
    ) -> Iterator[Row]:
        """Yield every item of a stream's partition in the order of the sort keys, the head after the last entry.

        `kind` is how the keys begin, such as `log#`; `after` continues after a key (`sortkeys.row_key`); `page_items`
        as in `journal`. Cost: one Query a page. Raises CorruptionError, which names the item, at the first that is
        malformed.
        """
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

    def policies(self) -> tuple[Policy, ...]:
        """Return all policies of retention, by name. Cost: one Query a page, of thousands."""
        ...

    def cursor(self, name: str) -> bytes | None:
        """Return how far a long run has got, None if none of that name has begun. Cost: one GetItem."""
        ...

    def state_item(self, partition: str, key: str) -> StateItem | None:
        """Return a state item, None if there is none. Cost: one GetItem."""
        ...

    def state_items(self, partition: str, *, after: str = "", page_items: int | None = None) -> Iterator[StateItem]:
        """Yield the state items of a partition by key, from after `after` on. Cost: one Query a page.

        `page_items` as in `journal`.
        """
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

    def put_policy(self, policy: Policy) -> None:
        """Write a policy, over the one of its name. Cost: one PUT."""
        ...

    def delete_policy(self, name: str) -> bool:
        """Delete a policy; return whether it existed. Cost: one DELETE."""
        ...

    def put_cursor(self, name: str, data: bytes) -> None:
        """Write how far a run has got, up to 300 KB, over what was written before. Cost: one PUT a KB."""
        ...

    def delete_cursor(self, name: str) -> None:
        """Forget how far a run has got, if it was written. Cost: one DELETE."""
        ...

    def put_state(self, *changed: StateItem) -> None:
        """Write up to 100 state items as one transaction, each over the one of the revision before.

        One at revision 1 must not be there. Cost: for one item a PUT, for more a transaction at twice the price. Raises
        LostRaceError unless every item still has that revision; OutcomeUnknownError if no answer came.
        """
        ...

    def add_state(self, item: StateItem) -> None:
        """Write a state item of any revision, as a rebuild finds it. Cost: one PUT.

        Raises LostRaceError if there is one; OutcomeUnknownError.
        """
        ...

    def delete_state(self, item: StateItem) -> None:
        """Delete a state item of exactly this revision. Cost: one DELETE. Raises LostRaceError."""
        ...
