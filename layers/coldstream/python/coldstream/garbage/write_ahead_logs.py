"""Write-ahead logs of direct streams: which of their objects nobody will miss, and the proof of that.

The process that writes a log deletes what it has flushed. What a dead one left is needed until others have recovered
it, and nobody deletes it then. The proof, for a log (docs/garbage.md):

1. It is sealed: no object from the seal on counts, however late it comes. If nobody has sealed it, and nothing was
   written to it for a day, it is sealed here. That harms no process that lives: it goes on in its next log.
2. Each batch of the object is in the manifest, or of an opening that was recovered or given up, or of a stream that is
   deleted for good. None of these is ever undone. A batch of a stream that the table does not know proves nothing: the
   table may have been lost.
3. The seal stays for ever, and the last objects before it are replaced by empty ones of the same nonce. A writer that
   wakes up repeats its last PUTs: where it finds its nonce, the batches count, and where it finds the seal, its log is
   over. Were the key free, its PUT would succeed, and it would acknowledge a batch that nobody ever looks for.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from zlib import crc32

from coldstream.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError
from coldstream.garbage.fragments import Judged
from coldstream.garbage.kinds import ObjectState
from coldstream.garbage.looked_at import LookedAt
from coldstream.garbage.options import GarbageOptions
from coldstream.manifest.appending import tail_of
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.object_values import ListedObject
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.wal_object import (
    EMPTY_BYTES,
    FIXED_BYTES,
    NONCE_BYTES,
    WalEntry,
    WalHeader,
    WalObjectKind,
    header_bytes_of,
    kind_and_nonce,
    parse_header,
    seal_object,
    wal_object,
)
from coldstream.store.wal_window import REACH, kept_at_the_end, what_counts
from coldstream.units import KIB, ByteRange, TimestampMs

FIRST_READ_BYTES = 64 * KIB
"""Bytes of an object that are read for its header; 700 batches have room in it."""

MAX_HEADS = 10_000
"""Heads that are remembered, a kilobyte each: a log's streams come again and again, and what is needless stays so."""


@dataclass(frozen=True, slots=True)
class _Log:
    """The last objects of a log in a listing, by sequence; the prefix of its keys; when it was last written to."""

    prefix: str
    there: Mapping[int, ListedObject]
    written: TimestampMs


@dataclass(slots=True)
class WalJudge:
    """Judges the objects of write-ahead logs in the archive's bucket, at one moment of AWS's clock."""

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    options: GarbageOptions
    at: TimestampMs
    _heads: dict[Incarnation, Head | None] = field(default_factory=dict)

    def judge(self, objects: Iterable[LookedAt]) -> Iterator[Judged]:
        """Judge objects, all of a log together. In memory: the objects of one log among them.

        Cost: nothing for a log of which nothing but its end is left. Else for a log one LIST a thousand objects and up
        to 32 GETs of 32 bytes, a GET for each old object, and a GetItem for each stream; with `delete` also up to 33
        PUTs, once. Raises UnavailableError.
        """
        for _, group in groupby(objects, key=_log_of):
            yield from self._judge(list(group))

    def _judge(self, group: Sequence[LookedAt]) -> Iterator[Judged]:
        old = [one for one in group if self._is_old(one.last_modified)]
        yield from ((one, ObjectState.YOUNG) for one in group if not self._is_old(one.last_modified))
        end, otherwise = None, ObjectState.IN_USE
        # If nothing is left but the end, nothing is to be won.
        if len(old) > REACH + 1 or any(one.listed.size_bytes > EMPTY_BYTES for one in old):
            try:
                end = self._sealed_end(group[0])
            except ObjectNotFoundError:
                pass  # trimmed since it was listed: its writer lives
            except CorruptionError:
                otherwise = ObjectState.UNKNOWN
        for one in old:
            yield one, otherwise if end is None else self._state(one, end)

    def _is_old(self, written: TimestampMs) -> bool:
        return self.at - written > self.options.older_than_ms

    def _state(self, one: LookedAt, end: int) -> ObjectState:
        sequence = _sequence_of(one)
        if sequence > end:
            return ObjectState.GARBAGE
        if sequence == end:
            return ObjectState.IN_USE
        state, nonce = self._content(one.key)
        if state is not ObjectState.GARBAGE or sequence not in kept_at_the_end(end):
            return state
        if self.options.delete and one.listed.size_bytes > EMPTY_BYTES:
            # Over the old one, not after it was deleted: at no moment is the key free.
            self.objects.put(one.key, wal_object(nonce, ()))
        return ObjectState.IN_USE

    def _content(self, key: str) -> tuple[ObjectState, bytes]:
        """Read what the batches of an object are, taken together, and its nonce."""
        try:
            header = self._header(key)
        except ObjectNotFoundError:
            return ObjectState.IN_USE, b""  # trimmed since the listing
        except CorruptionError:
            return ObjectState.UNKNOWN, b""
        states = {self._state_of_batch(entry) for entry in header.entries}
        for state in (ObjectState.UNKNOWN, ObjectState.WAITING):
            if state in states:
                return state, header.nonce
        return ObjectState.GARBAGE, header.nonce

    def _state_of_batch(self, entry: WalEntry) -> ObjectState:
        """Tell whether a batch is needed. What is garbage once, by any of these rules, is garbage for good."""
        head = self._head(entry.incarnation)
        if head is None or head.appender is None or entry.epoch > head.appender.epoch:
            return ObjectState.UNKNOWN
        if head.is_deleted:
            return ObjectState.WAITING if head.can_be_undeleted else ObjectState.GARBAGE
        is_left = entry.epoch in {opening.epoch for opening in head.appender.openings}
        return ObjectState.WAITING if is_left and entry.next_offset > tail_of(head) else ObjectState.GARBAGE

    def _head(self, incarnation: Incarnation) -> Head | None:
        if incarnation not in self._heads:
            if len(self._heads) == MAX_HEADS:
                self._heads.clear()
            self._heads[incarnation] = self.table.head(incarnation)
        return self._heads[incarnation]

    def _sealed_end(self, one: LookedAt) -> int | None:
        """Return where a log ends, for good; None if it may still go on.

        A report seals nothing: it says of a log that nobody has written to for long where it would be sealed.
        """
        log = self._listed(one)
        end, is_sealed = self._end(log)
        if is_sealed:
            return end
        if not self._is_old(log.written):
            return None
        if not self.options.delete:
            return end
        seal = seal_object(os.urandom(NONCE_BYTES))
        with suppress(ObjectExistsError):  # of another sealer, or of the writer, which lives
            self.objects.put_new(f"{log.prefix}{end:020}", io.BytesIO(seal), size_bytes=len(seal), crc32=crc32(seal))
        # Looked at again: if the log was trimmed meanwhile, the seal may lie where it does not count.
        end, is_sealed = self._end(self._listed(one))
        return end if is_sealed else None

    def _listed(self, one: LookedAt) -> _Log:
        prefix = one.key.rpartition("/")[0] + "/"
        # All that count: keys come in order, and `what_counts` looks no farther back.
        last: deque[tuple[int, ListedObject]] = deque(maxlen=REACH)
        written = TimestampMs(0)
        for listed in self.objects.listed(prefix):
            parsed = self.keys.parse(listed.key)
            if parsed is not None and parsed.sequence is not None:
                last.append((parsed.sequence, listed))
                written = max(written, listed.last_modified)
        return _Log(prefix, dict(last), written)

    def _end(self, log: _Log) -> tuple[int, bool]:
        """Return the first sequence that the writer did not take, and whether a seal is there: as sealers find it.

        Raises ObjectNotFoundError if an object was trimmed since it was listed, CorruptionError for a damaged one.
        """
        counting = what_counts(log.there)
        for sequence in counting:
            if sequence not in log.there:
                return sequence, False
            key = log.there[sequence].key
            view = self.objects.get_range(key, ByteRange(0, FIXED_BYTES)).data
            if kind_and_nonce(view, source=key)[0] is WalObjectKind.SEAL:
                return sequence, True
        return counting.stop, False

    def _header(self, key: str) -> WalHeader:
        view = self.objects.get_range(key, ByteRange(0, FIRST_READ_BYTES)).data
        size = header_bytes_of(view, source=key)
        if size > len(view) == FIRST_READ_BYTES:
            # From its start: another collector may have emptied the object since.
            view = self.objects.get_range(key, ByteRange(0, size)).data
        return parse_header(view, source=key)


def _log_of(one: LookedAt) -> tuple[str | None, int | None]:
    return (None, None) if one.parsed is None else (one.parsed.writer, one.parsed.epoch)


def _sequence_of(one: LookedAt) -> int:
    assert one.parsed is not None, one.key
    assert one.parsed.sequence is not None, one.key
    return one.parsed.sequence
