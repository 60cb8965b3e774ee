"""Control objects: what fragments cannot say, written to the bucket when it happens: the bucket alone must be enough.

Each is a small JSON object, with its fields by name and `"version": 1`; docs/formats.md lists them. Those of direct
streams are in `direct_notes`. A shard map has the
bytes of its event in the table, and an object for each revision, so that an older one never replaces a newer one.

What protects (names, a hold, a loss) is written before its transaction, and what removes (a floor, a deletion, an
erasure, the release of a hold) after it, so a rebuild never removes what the table had not removed. That order is the
callers'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TypeVar
from zlib import crc32

from coldstream.errors import (
    CorruptionError,
    ExpiredEpochError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from coldstream.manifest.access import Grant
from coldstream.manifest.appender import Opening
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import Erasure, Head, Hold, Loss
from coldstream.manifest.policy import Policy
from coldstream.manifest.shard_events import ShardEvent, event_of_map, map_bytes
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.state_item import MAX_STATE_BYTES
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.direct_notes import DirectNote, opening_bytes, parse_opening
from coldstream.store.keys import Keys
from coldstream.store.notes import note_bytes, parse_note
from coldstream.store.ports import ObjectStore
from coldstream.units import MAX_TIMESTAMP_MS, Epoch, Offset, TimestampMs

MAX_NOTE_BYTES = 1 << 18
"""A control object, or the note beside a quarantined segment, has some hundred bytes; its reason may be long."""

_Note = TypeVar("_Note")


@dataclass(frozen=True, slots=True)
class FloorNote:
    """What the change to `revision`, the head's `note_revision`, removed: the fields of the head of those names.

    An `undeletion` says what is left of that by the change after it, if that comes to pass.
    """

    revision: int
    floor: Offset
    floor_timestamp: TimestampMs | None
    generation: int
    epoch: Epoch | None
    deleted_at: TimestampMs | None
    purge_at: TimestampMs | None
    purge_began_at: TimestampMs | None
    purged_at: TimestampMs | None
    undeletion: bool = False

    @classmethod
    def of(cls, head: Head) -> FloorNote:
        """Take them from a head."""
        return cls(
            head.note_revision,
            head.floor,
            head.floor_timestamp,
            head.generation,
            head.epoch,
            head.deleted_at,
            head.purge_at,
            head.purge_began_at,
            head.purged_at,
        )


@dataclass(frozen=True, slots=True)
class HoldRelease:
    """The hold of this id is released, by whom."""

    id: str
    by: str


@dataclass(frozen=True, slots=True)
class ClusterBinding:
    """A stream, by its names, is bound to a cluster."""

    vhost: str
    name: str
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class ControlObjects:
    """The control objects of one archive.

    A write costs one PUT, and may be repeated. A read costs a listing every thousand objects and a GET for each; it
    yields in the order of the keys, and raises CorruptionError at an object that is not what its key says.
    """

    objects: ObjectStore
    keys: Keys

    def write_stream(self, stream: StreamId) -> None:
        """Write the names of a stream, before its first fragment is committed."""
        self._write(self.keys.stream_note(stream.incarnation), stream)

    def stream(self, incarnation: Incarnation) -> StreamId | None:
        """Read the names of a stream, None if nobody wrote them: an earlier release began it. Cost: one GET."""
        key = self.keys.stream_note(incarnation)
        try:
            return self._read(key, StreamId, lambda found: self.keys.stream_note(found.incarnation))
        except ObjectNotFoundError:
            return None

    def write_floor(self, head: Head) -> None:
        """Write the floor, the generation and the deletion of a head."""
        self._write(self.keys.floor_note(head.stream.incarnation, head.note_revision), FloorNote.of(head))

    def write_missing_floor(self, head: Head) -> None:
        """Write the floor, the generation and the deletion of a head, unless the last note says the same.

        Whoever deletes objects calls this before, whether or not it raised any of them itself: the process that did may
        have died before its note. Cost: a listing and a GET, and a PUT if the note is missing.
        """
        known, now = self.latest_floor(head.stream.incarnation), FloorNote.of(head)
        # Other changes raise the revision, too, and remove nothing.
        if known is None or replace(known, revision=now.revision, undeletion=False) != now:
            self.write_floor(head)

    def write_undeletion(self, head: Head) -> None:
        """Write what is left by the head of an undeletion that is about to be written.

        It has a key of its own: whoever deleted the stream may write his note later, and must not write over this one.
        It comes before that of any later change: written late, it must not hide what a purge has noted by then.
        """
        note = replace(FloorNote.of(head), revision=head.note_revision - 1, undeletion=True)
        self._write(self._floor_key(head.stream.incarnation, note), note)

    def floors(self, incarnation: Incarnation) -> Iterator[FloorNote]:
        """Yield what was removed, by revision: the last counts."""
        return self._all(self._floors(incarnation), FloorNote, lambda found: self._floor_key(incarnation, found))

    def latest_floor(self, incarnation: Incarnation) -> FloorNote | None:
        """Return the last of `floors`, which counts, None if there is none. Cost: a listing and one GET."""
        last = max((found.key for found in self.objects.listed(self._floors(incarnation))), default=None)
        if last is None:
            return None
        return self._read(last, FloorNote, lambda found: self._floor_key(incarnation, found))

    def write_opening(self, stream: StreamId, opening: Opening) -> None:
        """Write that an epoch is taken, and where its batches will be: after the opening's transaction, before them.

        Again is the same. Cost: one PUT; if there is one, a GET. Raises ExpiredEpochError if another opening took the
        epoch, as one of before the table was rebuilt may have.
        """
        key, data = self._opening(stream.incarnation, opening.epoch), opening_bytes(opening)
        try:
            self.objects.put_new(key, BytesIO(data), size_bytes=len(data), crc32=crc32(data))
        except ObjectExistsError as err:
            if self.objects.get_whole(key, MAX_NOTE_BYTES) != data:
                raise ExpiredEpochError(str(stream), opening.epoch, opening.epoch) from err

    def openings(
        self,
        incarnation: Incarnation,
        *,
        after: Epoch = Epoch(0),  # noqa: B008  a NewType is its value
        until: int = MAX_TIMESTAMP_MS,
    ) -> Iterator[Opening]:
        """Yield the openings of a direct stream after an epoch, by epoch, that were noted `until` a time of S3's."""
        for found in self.objects.listed(self.keys.openings(incarnation), after=self._opening(incarnation, after)):
            if found.last_modified > until:
                continue
            opening = parse_opening(self.objects.get_whole(found.key, MAX_NOTE_BYTES), source=found.key)
            self._check_key(found.key, self._opening(incarnation, opening.epoch))
            yield opening

    def last_epoch(self, incarnation: Incarnation) -> Epoch:
        """Return the greatest epoch that an opening has taken, 0 without any. Cost: a listing."""
        parsed = (self.keys.parse(found.key) for found in self.objects.listed(self.keys.openings(incarnation)))
        return Epoch(max((key.epoch or 0 for key in parsed if key is not None), default=0))

    def write_direct(self, head: Head) -> None:
        """Write what the head of a direct stream says of appending, at its revision.

        The planned head before the transaction that creates the stream; after that which closes, seals, trims or
        recovers it. Raises StreamNotFoundError if a broker has the stream.
        """
        note = DirectNote.of(head)
        self.objects.put(self.keys.direct_note(head.stream.incarnation, note.revision), note.to_bytes())

    def latest_direct(self, incarnation: Incarnation, *, until: int = MAX_TIMESTAMP_MS) -> DirectNote | None:
        """Return what was written of a direct stream at the greatest revision, `until` a time of S3's.

        None for a broker's stream. Cost: a listing and one GET.
        """
        listed = self.objects.listed(self.keys.direct_notes(incarnation))
        last = max((found.key for found in listed if found.last_modified <= until), default=None)
        if last is None:
            return None
        note = DirectNote.from_bytes(self.objects.get_whole(last, MAX_NOTE_BYTES), source=last)
        self._check_key(last, self.keys.direct_note(incarnation, note.revision))
        return note

    def write_loss(self, incarnation: Incarnation, loss: Loss) -> None:
        """Write a loss."""
        self._write(self.keys.loss_note(incarnation, loss.first_offset, loss.next_offset), loss)

    def losses(self, incarnation: Incarnation) -> Iterator[Loss]:
        """Yield the losses, by first offset."""
        return self._all(
            self.keys.losses(incarnation),
            Loss,
            lambda found: self.keys.loss_note(incarnation, found.first_offset, found.next_offset),
        )

    def write_hold(self, incarnation: Incarnation, hold: Hold) -> None:
        """Write a hold. Raises InvalidNameError for an id that no key can hold."""
        self._write(self.keys.hold_note(incarnation, hold.id), hold)

    def write_release(self, incarnation: Incarnation, hold: Hold, by: str) -> None:
        """Write that a hold is released; what says that it was put stays."""
        self._write(self.keys.released_note(incarnation, hold.id), HoldRelease(hold.id, by))

    def holds(self, incarnation: Incarnation) -> Iterator[Hold]:
        """Yield the holds that were put, by id, also those that were released."""
        prefix = f"{self.keys.control(incarnation)}hold."
        return self._all(prefix, Hold, lambda found: self.keys.hold_note(incarnation, found.id))

    def releases(self, incarnation: Incarnation) -> Iterator[HoldRelease]:
        """Yield the releases of holds, by id."""
        prefix = f"{self.keys.control(incarnation)}release."
        return self._all(prefix, HoldRelease, lambda found: self.keys.released_note(incarnation, found.id))

    def write_erasure(self, incarnation: Incarnation, erasure: Erasure) -> None:
        """Write an erasure, over its earlier state. Raises InvalidNameError for an id that no key can hold."""
        self._write(self.keys.erasure_note(incarnation, erasure.id), erasure)

    def erasures(self, incarnation: Incarnation) -> Iterator[Erasure]:
        """Yield the erasures, by id."""
        prefix = f"{self.keys.control(incarnation)}erasure."
        return self._all(prefix, Erasure, lambda found: self.keys.erasure_note(incarnation, found.id))

    def write_grant(self, grant: Grant) -> None:
        """Write a grant."""
        self._write(self.keys.grant_note(grant), grant)

    def delete_grant(self, grant: Grant) -> None:
        """Delete a grant, if it was written."""
        self.objects.delete(self.keys.grant_note(grant))

    def grants(self) -> Iterator[Grant]:
        """Yield the grants, in no order that means anything."""
        return self._all(f"{self.keys.archive_control}grants/", Grant, self.keys.grant_note)

    def write_policy(self, policy: Policy) -> None:
        """Write a policy, over the one of its name."""
        self._write(self.keys.policy_note(policy.name), policy)

    def delete_policy(self, name: str) -> None:
        """Delete a policy, if it was written."""
        self.objects.delete(self.keys.policy_note(name))

    def policies(self) -> Iterator[Policy]:
        """Yield the policies, in no order that means anything."""
        prefix = f"{self.keys.archive_control}policies/"
        return self._all(prefix, Policy, lambda found: self.keys.policy_note(found.name))

    def write_cluster(self, vhost: str, name: str, cluster: Cluster) -> None:
        """Write that a stream is bound to a cluster."""
        self._write(self.keys.cluster_note(vhost, name), ClusterBinding(vhost, name, cluster))

    def clusters(self) -> Iterator[ClusterBinding]:
        """Yield the bindings of streams to clusters, in no order that means anything."""
        prefix = f"{self.keys.archive_control}clusters/"
        return self._all(prefix, ClusterBinding, lambda found: self.keys.cluster_note(found.vhost, found.name))

    def write_shard_map(self, event: ShardEvent, found: ShardMap) -> None:
        """Write a shard map at its revision, with the event that led to it."""
        self.objects.put(self.keys.shard_note(found.vhost, found.name, found.revision), map_bytes(found, event))

    def has_shard_map(self, found: ShardMap) -> bool:
        """Tell whether a shard map is there at its revision. Cost: one HEAD."""
        return self.objects.info(self.keys.shard_note(found.vhost, found.name, found.revision)) is not None

    def shard_maps(self) -> Iterator[tuple[ShardEvent, ShardMap]]:
        """Yield the shard maps at every revision that is there: one logical name after the other, each by revision."""
        for listed in self.objects.listed(self.keys.shard_notes):
            event, found = event_of_map(self.objects.get_whole(listed.key, MAX_STATE_BYTES), source=listed.key)
            self._check_key(listed.key, self.keys.shard_note(found.vhost, found.name, found.revision))
            yield event, found

    def _floor_key(self, incarnation: Incarnation, note: FloorNote) -> str:
        return self.keys.floor_note(incarnation, note.revision, undeletion=note.undeletion)

    def _opening(self, incarnation: Incarnation, epoch: Epoch) -> str:
        return self.keys.opening_note(incarnation, epoch)

    def _floors(self, incarnation: Incarnation) -> str:
        return f"{self.keys.control(incarnation)}floor."

    def _write(self, key: str, note: object) -> None:
        self.objects.put(key, note_bytes(note))

    def _all(self, prefix: str, shape: type[_Note], key_of: Callable[[_Note], str]) -> Iterator[_Note]:
        for found in self.objects.listed(prefix):
            try:
                yield self._read(found.key, shape, key_of)
            except ObjectNotFoundError:
                continue  # deleted since it was listed

    def _read(self, key: str, shape: type[_Note], key_of: Callable[[_Note], str]) -> _Note:
        note = parse_note(shape, self.objects.get_whole(key, MAX_NOTE_BYTES), source=key)
        self._check_key(key, key_of(note))
        return note

    def _check_key(self, key: str, own: str) -> None:
        if own != key:
            # Whoever moved an object in the bucket must not move what it protects, or what it removes.
            raise CorruptionError(key, 0, "its content belongs at another key", expected=key, found=own)
