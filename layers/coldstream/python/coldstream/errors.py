"""Every error that coldstream raises on purpose.

    ColdstreamError
    ├── CorruptionError            bytes that break the rules of their format; never retried
    │   ├── BadMagicError          a file, chunk, index or fragment does not start as it must
    │   ├── BadVersionError        a version, type or encoding that this release does not know
    │   ├── BadLengthError         a length that contradicts other lengths, or exceeds a bound
    │   ├── TruncatedError         the bytes end before the thing they began
    │   ├── BadCrcError            the checksum differs
    │   ├── BadCountError          a count in a header differs from the data
    │   └── BadSequenceError       a chunk does not follow the one before
    ├── InvalidInputError          the caller asked for something impossible; never retried
    │   ├── InvalidEventError      an event that breaks its schema
    │   ├── InvalidNameError       a malformed vhost, stream name or incarnation
    │   ├── InvalidQueryError      a malformed offset spec, bound or cursor
    │   │   └── PredicateError     a malformed search for messages; it names the character
    │   ├── InvalidSettingError    configuration that is missing or malformed
    │   ├── MediaTypeError         a request's body is of another media type than the API takes
    │   ├── OtherClusterError      a stream that another cluster announced first
    │   └── ReservedNameError      a sharded stream has this name; only `coldstream shards` changes those
    ├── BadFrameError              a frame that breaks the stream protocol; its connection ends
    │   └── FrameTooLargeError     a frame that is larger than was agreed
    ├── ClosedLinkError            a connection of the gateway has ended under a call that waited for it
    ├── NotFoundError              the thing asked for does not exist
    │   ├── StreamNotFoundError    no such stream, or no such incarnation
    │   ├── LogicalNameError       no sharded stream has this name
    │   ├── JobNotFoundError       no such job, or it was deleted
    │   ├── RouteNotFoundError     the resolver does not have this path; it is of an earlier release
    │   ├── IncarnationError       the stream being read is gone; another has its name
    │   ├── ObjectNotFoundError    no object at that key
    │   ├── NoRouteError           no partition takes a message with that routing key
    │   └── UnroutableError        an exchange has no queue for a message, and drops it
    ├── GapError                   the archive does not hold these offsets
    ├── ContradictionError         a segment is of another history than the archive; it is put aside
    ├── OverlapError               the manifest holds a part of a fragment; cut it again
    ├── RemovedError               a change would bring back what was removed on purpose; never as it is
    │   ├── StreamDeletedError     the stream is deleted; it can be undeleted until it is purged
    │   ├── PurgedError            the purge of a deleted stream has begun; nothing brings it back
    │   ├── BelowFloorError        offsets below the floor are removed for good; cut there
    │   └── StaleGenerationError   that key may be collected already; put the object at a newer generation
    ├── HeldError                  a legal hold protects these offsets; release it first
    ├── OtherCopiesError           other objects hold what is to be erased; they must go first
    ├── OffsetOutOfRangeError      an offset of a direct stream that is trimmed, or not confirmed yet
    ├── StreamClosedError          this handle of a direct stream is closed, or the stream is sealed
    ├── ExpiredEpochError          the direct stream was opened again; this handle's epoch is over
    ├── NotClosedError             the direct stream was not closed, and its write-ahead log is elsewhere
    ├── NotDeletedError            the stream is not deleted: there is nothing to undo or to purge
    ├── NotRestoredError           the object is in a cold storage class; restore it first
    ├── NotRecordedError           an earlier release wrote these changes, and the journal does not hold them
    ├── ConflictError              somebody else was first
    │   ├── ObjectExistsError      the key is taken; look at the object there
    │   ├── ReplacedError          the object at that key has been replaced
    │   ├── LostRaceError          the manifest moved on; read again and retry
    │   ├── QueueTakenError        somebody else consumes the queue that is to be archived
    │   ├── StreamExistsError      there is already a direct stream of that name
    │   ├── IdempotencyError       the same idempotency key was given for another job
    │   ├── UnexpectedTailError    the direct stream is at another offset than an append expected
    │   └── WalEndedError          a write-ahead log was sealed; its writer goes on in another one
    ├── DamageError                a scrub found damages that are not mended
    ├── BudgetError                what a run may use is used up before it was done
    ├── RunnerError                no runner can run a job as it is
    ├── SliceError                 a Lambda's time was too short for a job's next step
    ├── JobStateError              a job is in a state in which that cannot be done with it
    ├── LeaseLostError             another worker has the job; this one must do no more of it
    ├── NotOwnerError              a partition is no longer this member's; another member of its group goes on with it
    ├── ShardChangeError           a sharded stream cannot change in this way, or not now
    ├── MissingExtraError          a package that this part needs is not installed; also an ImportError
    ├── StoppedError               the caller stopped the call; nothing was changed
    ├── OutcomeUnknownError        a write was sent and no answer came; read again before retrying
    └── UnavailableError           a service did not answer, or asked to slow down; retry later
        └── AccessDeniedError      credentials are missing, expired or insufficient; retrying alone does not help
            ├── BrokerRefusedError         the broker's user may not do this with a stream
            │   ├── LoginRefusedError      the broker refuses this user and password
            │   └── VhostRefusedError      there is no such vhost, or the user has no permissions in it
            └── NotPermittedError  the resolver knows the caller, who may not read that stream

Errors of other libraries stop at the border of the package that uses the library. They come out as one of these, with
the original as the cause. `retryable` tells whether the same call may succeed later without anybody doing anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar


class ColdstreamError(Exception):
    """Base of every error that coldstream raises on purpose."""

    retryable: ClassVar[bool] = False


class CorruptionError(ColdstreamError):
    """Bytes that break the rules of their format.

    `source` names the file or key, `position` the byte where the unit in question begins.
    """

    def __init__(self, source: str, position: int, what: str, *, expected: object = None, found: object = None) -> None:
        self.source = source
        self.position = position
        self.what = what
        self.expected = expected
        self.found = found
        detail = "" if expected is None and found is None else f": expected {expected}, found {found}"
        super().__init__(f"{source} at byte {position}: {what}{detail}")


class BadMagicError(CorruptionError):
    """A file, chunk, index or fragment does not start as it must."""


class BadVersionError(CorruptionError):
    """A version, type or encoding that this release does not know."""


class BadLengthError(CorruptionError):
    """A length that contradicts other lengths, or exceeds a bound."""


class TruncatedError(CorruptionError):
    """The bytes end before the thing they began."""


class BadCrcError(CorruptionError):
    """The checksum in a header differs from that of the data."""


class BadCountError(CorruptionError):
    """A count in a header differs from the data."""


class BadSequenceError(CorruptionError):
    """A chunk does not follow the one before it."""


class InvalidInputError(ColdstreamError):
    """The caller asked for something impossible. `field` names the part that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class InvalidEventError(InvalidInputError):
    """An event that breaks its schema."""


class InvalidNameError(InvalidInputError):
    """A malformed vhost, stream name or incarnation."""


class InvalidQueryError(InvalidInputError):
    """A malformed offset spec, bound or cursor."""


class PredicateError(InvalidQueryError):
    """A search for messages that cannot be read. `position` counts the characters before the one that is wrong."""

    def __init__(self, position: int, problem: str) -> None:
        self.position = position
        super().__init__("where", f"at character {position + 1}: {problem}")


class InvalidSettingError(InvalidInputError):
    """Configuration that is missing or malformed."""


class MediaTypeError(InvalidInputError):
    """A request's body is of another media type than the API takes."""


class OtherClusterError(InvalidInputError):
    """A stream that is bound to the cluster `bound`, and that `announcing`, or an agent of no cluster, announced."""

    def __init__(self, vhost: str, name: str, bound: str, announcing: str) -> None:
        self.vhost = vhost
        self.name = name
        self.bound = bound
        self.announcing = announcing
        by = f"by cluster {announcing!r}" if announcing else "by an agent without COLDSTREAM_CLUSTER"
        super().__init__(
            "cluster",
            f"stream {name!r} in vhost {vhost!r} is bound to cluster {bound!r} in this archive, and was announced {by}."
            " Two clusters with streams of the same names need vhosts of their own, or an archive each",
        )


class ReservedNameError(InvalidInputError):
    """A name is that of a sharded stream, or of one of its partitions, and only `coldstream shards` changes those."""


class BadFrameError(ColdstreamError):
    """A frame that breaks the stream protocol. The connection it came from has to end."""


class FrameTooLargeError(BadFrameError):
    """A frame that is larger than was agreed, or than anybody has a use for."""


class ClosedLinkError(ColdstreamError):
    """A connection of the gateway has ended under a call that waited for it."""


class NotFoundError(ColdstreamError):
    """The thing asked for does not exist."""


class StreamNotFoundError(NotFoundError):
    """No such stream in the archive, or no such incarnation of it."""


class LogicalNameError(NotFoundError):
    """No sharded stream has this name in the archive's manifest."""


class JobNotFoundError(NotFoundError):
    """There is no such job, or it was deleted."""

    def __init__(self, job: str) -> None:
        self.job = job
        super().__init__(f"there is no job {job[:80]!r}")


class RouteNotFoundError(NotFoundError):
    """The resolver does not have this path: it is of an earlier release than its client."""


class IncarnationError(NotFoundError):
    """The stream being read is gone, and another has its name: two incarnations are never read as one."""


class ObjectNotFoundError(NotFoundError):
    """No object at that key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"no object at {key}")


class NoRouteError(NotFoundError):
    """Nothing is bound that takes a message with the routing key `routing_key`."""

    def __init__(self, routing_key: str) -> None:
        self.routing_key = routing_key
        super().__init__(f"nothing is bound that takes a message with the routing key {routing_key!r}")


class UnroutableError(NotFoundError):
    """No queue is bound to an exchange for the message at `offset`: a broker confirms such a message and drops it."""

    def __init__(self, exchange: str, offset: int, routing_key: str) -> None:
        self.offset = offset
        self.routing_key = routing_key
        super().__init__(
            f"{exchange} drops the message at offset {offset}: no queue is bound for its routing key {routing_key!r};"
            " bind one and run this again, or let such messages go with --allow-unroutable"
        )


class GapError(ColdstreamError):
    """The archive does not hold the offsets from `first_offset` up to, not including, `next_offset`."""

    def __init__(self, stream: str, first_offset: int, next_offset: int, reason: str | None = None) -> None:
        self.stream = stream
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.reason = reason
        because = "not archived" if reason is None else reason
        super().__init__(f"{stream} has a gap: offsets {first_offset} to {next_offset - 1} ({because})")


class ContradictionError(ColdstreamError):
    """A segment is of another history than the archive. The chunks archived first stay; the segment is put aside.

    `source` is the segment or the fragment that came later, `chunk_id` the first of its chunks that contradicts.
    """

    def __init__(self, source: str, chunk_id: int, contradiction: str) -> None:
        self.source = source
        self.chunk_id = chunk_id
        super().__init__(f"{source} contradicts what is archived, from offset {chunk_id} on: {contradiction}")


class OverlapError(ColdstreamError):
    """The manifest holds a part of the offsets of the fragment at `key`, which can never be committed as it is."""

    def __init__(self, key: str, first_offset: int, next_offset: int, held: str) -> None:
        self.key = key
        self.first_offset = first_offset
        self.next_offset = next_offset
        super().__init__(f"{key}: the fragment of offsets {first_offset} to {next_offset - 1} overlaps {held}")


class RemovedError(ColdstreamError):
    """A change would bring back what was removed on purpose. The same change never passes."""


class StreamDeletedError(RemovedError):
    """The stream was deleted at `deleted_at`, and takes no fragments. Retry only after somebody undeleted it."""

    def __init__(self, stream: str, deleted_at: int) -> None:
        self.stream = stream
        self.deleted_at = deleted_at
        super().__init__(f"{stream} is deleted")


class PurgedError(RemovedError):
    """The deleted stream is being purged, or has been: its deletion can no longer be undone."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        super().__init__(f"{stream} is deleted for good: its purge has begun")


class BelowFloorError(RemovedError):
    """The fragment at `key` has offsets below the floor. Cut it at `floor`, if any of it lies above."""

    def __init__(self, key: str, first_offset: int, next_offset: int, floor: int) -> None:
        self.key = key
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.floor = floor
        super().__init__(f"{key}: of offsets {first_offset} to {next_offset - 1}, those below {floor} are removed")


class StaleGenerationError(RemovedError):
    """The object at `key` may be collected already. Put the bytes at a key of `generation` or later, and try that."""

    def __init__(self, key: str, found: int, generation: int) -> None:
        self.key = key
        self.found = found
        self.generation = generation
        super().__init__(f"{key} is of generation {found}, and only {generation} or later may be committed")


class HeldError(ColdstreamError):
    """The legal hold `hold_id` protects some of the offsets. Retry after somebody with the right released it."""

    def __init__(self, hold_id: str, first_offset: int, next_offset: int, reason: str) -> None:
        self.hold_id = hold_id
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.reason = reason
        super().__init__(f"hold {hold_id!r} protects some of offsets {first_offset} to {next_offset - 1}: {reason}")


class OtherCopiesError(ColdstreamError):
    """Other objects hold the bytes that are to be erased: `copies` describes each. Retry once they are gone."""

    MAX_TOLD: ClassVar[int] = 5

    def __init__(self, copies: Sequence[str]) -> None:
        self.copies = tuple(copies)
        more = len(self.copies) - self.MAX_TOLD
        told = "; ".join((*self.copies[: self.MAX_TOLD], *([f"and {more} more"] if more > 0 else [])))
        super().__init__(f"other copies of the bytes are in the bucket: {told}")


class OffsetOutOfRangeError(ColdstreamError):
    """An offset of a direct stream is below its start, or past what is confirmed: `start` up to `end` can be read."""

    def __init__(self, stream: str, offset: int, start: int, end: int) -> None:
        self.stream = stream
        self.offset = offset
        self.start = start
        self.end = end
        super().__init__(f"{stream}: offset {offset} is not within {start} to {end}")


class StreamClosedError(ColdstreamError):
    """This handle of a direct stream takes no call any more, or the stream is sealed; `why` says which."""

    def __init__(self, stream: str, why: str) -> None:
        self.stream = stream
        self.why = why
        super().__init__(f"{stream} {why}")


class ExpiredEpochError(ColdstreamError):
    """Another process, or another call of this one, has opened the stream since; it has a later epoch."""

    def __init__(self, stream: str, epoch: int, current: int) -> None:
        self.stream = stream
        self.epoch = epoch
        self.current = current
        super().__init__(f"{stream} was opened again: epoch {epoch} is over, it is at {current}")


class NotClosedError(ColdstreamError):
    """A stream was not closed, and only who has the write-ahead log `wal` can: it is on a disk, or in a memory."""

    def __init__(self, stream: str, wal: str) -> None:
        self.stream = stream
        self.wal = wal
        super().__init__(
            f"{stream} was not closed, and what was appended last may be in the write-ahead log {wal} alone: open it"
            " where that is, or give that up with force"
        )


class NotDeletedError(ColdstreamError):
    """The stream is not deleted."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        super().__init__(f"{stream} is not deleted")


class NotRestoredError(ColdstreamError):
    """The object at `key` is in a cold storage class. Retry once a copy of it is restored, which takes hours.

    `command` is what restores it, for people, None where that is not known.
    """

    def __init__(self, key: str, storage_class: str | None = None, command: str | None = None) -> None:
        self.key = key
        self.storage_class = storage_class
        self.command = command
        what = "an archived storage class" if storage_class is None else storage_class
        how = "" if command is None else f": {command}"
        super().__init__(f"the object at {key} is in {what}, and must be restored before it can be read{how}")


class NotRecordedError(ColdstreamError):
    """The journal of an incarnation does not hold the change to `revision`: an earlier release wrote it.

    From the revision `since` on, None if there is none yet, every change is recorded.
    """

    def __init__(self, incarnation: str, revision: int, since: int | None) -> None:
        self.incarnation = incarnation
        self.revision = revision
        self.since = since
        known = "none is" if since is None else f"changes are recorded from revision {since} on"
        super().__init__(f"{incarnation}: an earlier release wrote revision {revision} without its change; {known}")


class ConflictError(ColdstreamError):
    """Somebody else was first."""

    retryable = True


class ObjectExistsError(ConflictError):
    """The key is taken, and a key never gets different bytes: look at the object there."""

    retryable = False

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"an object is already at {key}")


class ReplacedError(ConflictError):
    """The object at `key` has been replaced by another one."""

    def __init__(self, call: str, key: str) -> None:
        self.key = key
        super().__init__(f"{call} {key}: the object there is another")


class LostRaceError(ConflictError):
    """The manifest changed between reading and writing; nothing was written. Read again and retry."""


class QueueTakenError(ConflictError):
    """Somebody else consumes a queue that is being archived, or another archiver has taken it over."""

    retryable = False

    def __init__(self, vhost: str, queue: str, problem: str) -> None:
        self.vhost = vhost
        self.queue = queue
        super().__init__(f"queue {queue!r} in vhost {vhost!r} has one archiver and no other consumer: {problem}")


class IdempotencyError(ConflictError):
    """The same idempotency key was given before, for another job than this one."""

    retryable = False

    def __init__(self, job: str) -> None:
        self.job = job
        super().__init__(f"the idempotency key was given before, for job {job}, which is another: use a new key")


class JobStateError(ColdstreamError):
    """The job `job` is in a state in which that cannot be done with it; the message says what can be done instead."""

    def __init__(self, job: str, problem: str) -> None:
        self.job = job
        super().__init__(f"job {job} {problem}")


class DamageError(ColdstreamError):
    """A scrub found damages that are not mended: how many of each kind, and what to do about the worst."""

    def __init__(self, counts: Mapping[str, int], todo: str) -> None:
        self.counts = dict(counts)
        self.todo = todo
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        super().__init__(f"{sum(counts.values())} damages are not mended: {told}; what to do: {todo}")


class BudgetError(ColdstreamError):
    """A run used up what it may before it was done; the next one goes on there."""


class RunnerError(ColdstreamError):
    """No runner can run the job `job`, or one like it, as it is; the message says what to change."""

    def __init__(self, problem: str, job: str | None = None) -> None:
        self.job = job
        super().__init__(problem if job is None else f"job {job}: {problem}")


class SliceError(ColdstreamError):
    """The time that a Lambda has was too short to get a job any further. Another time may do; a worker has no limit."""

    retryable = True


class LeaseLostError(ColdstreamError):
    """Another worker has taken over the job, or may have: the worker of `epoch` must do no more of it."""

    def __init__(self, job: str, epoch: int) -> None:
        self.job = job
        self.epoch = epoch
        super().__init__(f"job {job} is another worker's now: the lease of epoch {epoch} is over")


class StreamExistsError(ConflictError):
    """There is a stream of that name already."""

    retryable = False

    def __init__(self, stream: str) -> None:
        self.stream = stream
        super().__init__(f"there is already a {stream}")


class UnexpectedTailError(ConflictError):
    """An append expected to get the offset `expected`, and the stream is at `tail`; nothing was appended."""

    retryable = False

    def __init__(self, stream: str, expected: int, tail: int) -> None:
        self.stream = stream
        self.expected = expected
        self.tail = tail
        super().__init__(f"{stream} is at offset {tail}, not {expected}: nothing was appended")


class WalEndedError(ConflictError):
    """The write-ahead log `wal` has ended before the object `sequence`: nothing from it on counts."""

    retryable = False

    def __init__(self, wal: str, sequence: int) -> None:
        self.wal = wal
        self.sequence = sequence
        super().__init__(f"the write-ahead log {wal} was sealed at {sequence}")


class NotOwnerError(ColdstreamError):
    """Partition `number` is not, or no longer, this member's: whoever has it now reads on from the group's position."""

    def __init__(self, group: str, number: int) -> None:
        self.group = group
        self.number = number
        super().__init__(f"partition {number} is not, or no longer, this member's of group {group!r}")


class ShardChangeError(ColdstreamError):
    """A sharded stream cannot change in this way, or not now; the message says what can be done."""


class MissingExtraError(ColdstreamError, ImportError):
    """A package that this part needs is not installed: the extra `extra` installs `module`."""

    def __init__(self, module: str, extra: str) -> None:
        self.module = module
        self.extra = extra
        super().__init__(f"this needs the package {module}, which comes with: pip install 'coldstream[{extra}]'")
        self.name = module


class StoppedError(ColdstreamError):
    """The caller stopped the call before its end; nothing was changed."""

    retryable = True


class OutcomeUnknownError(ColdstreamError):
    """A write was sent and no answer came: it may or may not have happened. Read before retrying."""

    retryable = True


class UnavailableError(ColdstreamError):
    """A service did not answer, failed, or asked to slow down."""

    retryable = True


class AccessDeniedError(UnavailableError):
    """Credentials are missing, expired, or insufficient for the call."""

    retryable = False


class BrokerRefusedError(AccessDeniedError):
    """The broker's user may not do this with a stream."""


class LoginRefusedError(BrokerRefusedError):
    """The broker refuses this user and password, at least from here."""


class VhostRefusedError(BrokerRefusedError):
    """There is no such vhost, or the user has no permissions in it: the broker does not tell which."""


class NotPermittedError(AccessDeniedError):
    """The resolver knows the caller, who may not read that stream, whether or not it exists."""
