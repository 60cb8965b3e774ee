"""Keys of objects: the layout of the bucket.

    {prefix}{hash8}_{incarnation}/data/{first offset, 20 digits}[.{generation}].fragment
    {prefix}{hash8}_{incarnation}/control/stream.json
    {prefix}{hash8}_{incarnation}/control/floor.{revision, 20 digits}.json
    {prefix}{hash8}_{incarnation}/control/open.{epoch, 20 digits}.json
    {prefix}{hash8}_{incarnation}/control/direct.{revision, 20 digits}.json
    {prefix}{hash8}_{incarnation}/control/{hold|release|erasure}.{id}.json
    {prefix}{hash8}_{incarnation}/control/loss.{first offset, 20 digits}-{next offset, 20 digits}.json
    {prefix}control/{grants|policies|clusters}/{sha256, 64 hex digits}.json
    {prefix}control/shards/{sha256, 64 hex digits}.{revision, 20 digits}.map
    {prefix}staging/[{cluster}/]{incarnation}/{first offset, 20 digits}-{next offset, 20 digits}.segment
    {prefix}quarantine/{incarnation}/{first offset, 20 digits}-{etag}.segment, and .json beside it with the reason
    {prefix}wal/{writer}/{epoch, 10 digits}/{sequence, 20 digits}
    {prefix}spans/[{cluster}/]{node}/{time in ms, 20 digits}.span

`hash8` spreads streams over S3's partitions. No vhost or stream name is ever part of a key. An incarnation is, and its
alphabet (manifest.stream) has neither "/" nor ".", so keys cannot collide or leave their prefix. The same holds for a
cluster, for a node and for the ids of holds and erasures. What a cluster stages, and its recovery log, lies one level
deeper than that of agents without a cluster, so that policies can tell them apart. `parsed_keys` reads keys back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from coldstream.errors import InvalidNameError
from coldstream.manifest.access import Grant
from coldstream.manifest.appender import check_writer
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.store.parsed_keys import NODE, ParsedKey, parse
from coldstream.store.sortkeys import grant_key, names_key
from coldstream.units import Epoch, Offset, TimestampMs

_STAGED = re.compile(r"(?P<first>[0-9]{20})-(?P<next>[0-9]{20})\.segment")
_NOTE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one archive. `prefix` is empty or ends in a slash; `cluster` is the one that stages segments."""

    prefix: str = ""
    cluster: Cluster = NO_CLUSTER

    def fragment(self, incarnation: Incarnation, first_offset: Offset, generation: int = 0) -> str:
        """Return the key of a fragment; generation 0 is left out of it."""
        suffix = f".{generation}" if generation else ""
        return f"{self.fragments(incarnation)}{first_offset:020}{suffix}.fragment"

    def fragments(self, incarnation: Incarnation) -> str:
        """Return the prefix of all fragments of an incarnation."""
        return f"{self.prefix}{directory_of(incarnation)}/data/"

    def staged(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> str:
        """Return the key of a staged segment."""
        return f"{self.staging(incarnation)}{first_offset:020}-{next_offset:020}.segment"

    def staging(self, incarnation: Incarnation) -> str:
        """Return the prefix of all segments of an incarnation that this cluster stages."""
        of_cluster = f"{self.cluster}/" if self.cluster else ""
        return f"{self.prefix}staging/{of_cluster}{incarnation}/"

    @property
    def all_staging(self) -> str:
        """The prefix of all segments that are staged, of any incarnation and by any cluster."""
        return f"{self.prefix}staging/"

    def staged_offsets(self, key: str) -> tuple[Offset, Offset] | None:
        """Read the first and the next offset of the segment at a key under `staging`; None for other keys."""
        match = _STAGED.fullmatch(key.rpartition("/")[2])
        return None if match is None else (Offset(int(match["first"])), Offset(int(match["next"])))

    def quarantined(self, incarnation: Incarnation, first_offset: Offset, etag: str) -> str:
        """Return the key of a segment that failed verification; the ETag tells the copies of replicas apart."""
        tag = re.sub(r"[^A-Za-z0-9-]", "", etag)[:64]
        return f"{self.quarantine(incarnation)}{first_offset:020}-{tag}.segment"

    def quarantine(self, incarnation: Incarnation) -> str:
        """Return the prefix of all segments of an incarnation in quarantine."""
        return f"{self.prefix}quarantine/{incarnation}/"

    def control(self, incarnation: Incarnation) -> str:
        """Return the prefix of all control objects of an incarnation."""
        return f"{self.prefix}{directory_of(incarnation)}/control/"

    def stream_note(self, incarnation: Incarnation) -> str:
        """Return the key of the object that names the stream of an incarnation."""
        return f"{self.control(incarnation)}stream.json"

    def floor_note(self, incarnation: Incarnation, revision: int, *, undeletion: bool = False) -> str:
        """Return the key of the object that says what the change to `revision` removed.

        That of an `undeletion`, which is about to undo it, comes after it and before that of any later change.
        """
        return f"{self.control(incarnation)}floor.{revision:020}{'.undeletion' if undeletion else ''}.json"

    def hold_note(self, incarnation: Incarnation, hold: str) -> str:
        """Return the key of the object of a hold, by its id. Raises InvalidNameError."""
        return f"{self.control(incarnation)}hold.{_note_id(hold)}.json"

    def released_note(self, incarnation: Incarnation, hold: str) -> str:
        """Return the key of the object that says that a hold was released. Raises InvalidNameError."""
        return f"{self.control(incarnation)}release.{_note_id(hold)}.json"

    def erasure_note(self, incarnation: Incarnation, erasure: str) -> str:
        """Return the key of the object of an erasure, by its id. Raises InvalidNameError."""
        return f"{self.control(incarnation)}erasure.{_note_id(erasure)}.json"

    def opening_note(self, incarnation: Incarnation, epoch: Epoch) -> str:
        """Return the key of the object of an opening of a direct stream."""
        return f"{self.openings(incarnation)}{epoch:020}.json"

    def openings(self, incarnation: Incarnation) -> str:
        """Return what the keys of a direct stream's openings begin with."""
        return f"{self.control(incarnation)}open."

    def direct_note(self, incarnation: Incarnation, revision: int) -> str:
        """Return the key of the object of what the head of a direct stream has besides, as of a revision."""
        return f"{self.direct_notes(incarnation)}{revision:020}.json"

    def direct_notes(self, incarnation: Incarnation) -> str:
        """Return what the keys of those begin with."""
        return f"{self.control(incarnation)}direct."

    def loss_note(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> str:
        """Return the key of the object of a loss."""
        return f"{self.losses(incarnation)}{first_offset:020}-{next_offset:020}.json"

    def losses(self, incarnation: Incarnation) -> str:
        """Return what the keys of a stream's losses begin with."""
        return f"{self.control(incarnation)}loss."

    @property
    def archive_control(self) -> str:
        """The prefix of the control objects that are of no stream."""
        return f"{self.prefix}control/"

    def grant_note(self, grant: Grant) -> str:
        """Return the key of the object of a grant."""
        return f"{self.archive_control}grants/{_sha256(grant_key(grant))}.json"

    def policy_note(self, name: str) -> str:
        """Return the key of the object of a policy."""
        return f"{self.archive_control}policies/{_sha256(name)}.json"

    def cluster_note(self, vhost: str, name: str) -> str:
        """Return the key of the object that binds a stream to a cluster. Raises InvalidNameError."""
        return f"{self.archive_control}clusters/{names_key(vhost, name).removesuffix('#')}.json"

    def shard_note(self, vhost: str, name: str, revision: int) -> str:
        """Return the key of the object of a shard map at a revision. Raises InvalidNameError."""
        return f"{self.shard_notes}{names_key(vhost, name).removesuffix('#')}.{revision:020}.map"

    @property
    def shard_notes(self) -> str:
        """The prefix of the objects of all shard maps."""
        return f"{self.archive_control}shards/"

    def wal(self, writer: str) -> str:
        """Return the prefix of all write-ahead logs of a writer. Raises InvalidNameError."""
        check_writer(writer)
        return f"{self.wals}{writer}/"

    @property
    def wals(self) -> str:
        """The prefix of all write-ahead logs."""
        return f"{self.prefix}wal/"

    def wal_object(self, writer: str, epoch: int, sequence: int) -> str:
        """Return the key of an object of a write-ahead log. Raises InvalidNameError."""
        return f"{self.wal(writer)}{epoch:010}/{sequence:020}"

    def span(self, node: str, at: TimestampMs) -> str:
        """Return the key of an object of a node's recovery log. Raises InvalidNameError."""
        return f"{self.spans(node)}{at:020}.span"

    def spans(self, node: str) -> str:
        """Return the prefix of a node's recovery log. Raises InvalidNameError."""
        if not NODE.fullmatch(node):
            raise InvalidNameError("node", f"{node[:80]!r} is not 1 to 63 letters, digits and hyphens")
        of_cluster = f"{self.cluster}/" if self.cluster else ""
        return f"{self.all_spans}{of_cluster}{node}/"

    @property
    def all_spans(self) -> str:
        """The prefix of the recovery logs of all nodes of all clusters."""
        return f"{self.prefix}spans/"

    def parse(self, key: str) -> ParsedKey | None:
        """Read a key back; None unless it is, character for character, one that coldstream makes under this prefix."""
        return parse(key.removeprefix(self.prefix)) if key.startswith(self.prefix) else None


def directory_of(incarnation: Incarnation) -> str:
    """Return the directory of an incarnation's fragments and control objects, below the prefix."""
    return f"{_sha256(incarnation)[:8]}_{incarnation}"


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _note_id(text: str) -> str:
    if not _NOTE_ID.fullmatch(text):
        raise InvalidNameError("id", f"{text[:80]!r} is not 1 to 128 characters of A-Z a-z 0-9 _ -")
    return text
