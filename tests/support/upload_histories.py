"""Histories of one archive: uploads of two histories of a stream, of copies that are broken, cut or rebuilt, at once.

As in `histories`, one seed decides everything: who goes on at each request, what shows of transactions under way, who
dies where, and what is staged anew meanwhile. Functions are real, and so are the segments.

Whenever a staged copy is deleted, and at the end, what became of it is held against what was staged: archived to the
last chunk, or whole in quarantine. What is archived is held against the bytes of the two histories.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader, UploadResult
from coldstream.compact.options import CompactOptions
from coldstream.errors import ConflictError, CorruptionError, ObjectNotFoundError, OutcomeUnknownError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import make_chunk
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Encoding, FragmentEntry, Quarantine
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.compacting import compact_stream
from tests.support.compaction import identity_of
from tests.support.earlier_changes import without_later_fields
from tests.support.forked_streams import rebuild
from tests.support.histories import INCARNATION, NOW, STREAM, History, Killed, Table

START = 1_763_700_000_000


@dataclass(frozen=True)
class Log:
    """One history: its chunks, each with all of its bytes."""

    chunks: tuple[tuple[ChunkHeader, bytes], ...]

    def segment(self, first: int, last: int) -> bytes:
        """Make a segment of chunks `first` up to `last`."""
        return SEGMENT_HEADER + b"".join(data for _, data in self.chunks[first:last])


class Objects(MemoryObjects):
    """Objects of processes that die at them, and that look at what is deleted."""

    def __init__(self, history: UploadHistory) -> None:
        super().__init__()
        self._history = history

    def _count(self, call: str) -> None:
        super()._count(call)
        if self._history.is_troubled and self._history.rng.random() < 0.01:
            raise Killed
        self._history.turns.switch(0.3)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        before = self.objects.get(key)
        super().delete(key, if_match=if_match)
        if "/staging/" in key and before is not None and key not in self.objects:
            self._history.check_dealt_with(key, before)


class UploadTable(Table):
    """Functions of an earlier release may be at work: they neither write CRC-32s of chunks nor epochs."""

    def apply(self, change: Change) -> None:
        if self._history.rng.random() < self.earlier:
            entry = change.new_entry
            change = without_later_fields(change)
            if (
                change.head.next_offset is not None
                and entry is not None
                and change.head.next_offset == entry.next_offset
            ):
                change = replace(change, head=replace(change.head, epoch=None))
        super().apply(change)

    earlier = 0.0


class UploadHistory(History):
    """One seed's."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.table = UploadTable(self)
        self.table.earlier = self.rng.choice([0.0, 0.0, 0.3, 1.0])
        self.objects = Objects(self)
        self.keys = Keys("archive/")
        self.uploader = Uploader(
            self.table, self.objects, self.keys, self.rng.choice([300, 700, 1500]), now=lambda: NOW
        )
        # Of its own, so that the rest of a history does not depend on it.
        self._encodings = random.Random(f"encodings {seed}")
        self.is_over = False
        self.busy = self.rng.choice([1, 2, 30])  # segments that copies come of
        self.fork = self.rng.randrange(0, 24)
        kind = self.rng.choice(["messages", "epoch", "later epoch", "times"])
        content = self.rng.randrange(1 << 30)
        self.logs = (
            _log(content, self.fork, ""),
            _log(content, self.fork, kind),
        )
        self.cuts = [self._cuts(log) for log in self.logs]
        self.queue: list[SegmentRolled] = []
        self.outcomes: list[tuple[SegmentRolled, UploadResult]] = []
        self.staged: dict[tuple[str, bytes], bool] = {}

    def run(self) -> None:
        """Let it happen, start again who died, deliver what is left, and check all of it."""
        for _ in range(self.rng.randrange(1, 4)):
            self.turns.run([self._tried(work) for work in self._works()])
        self.is_troubled, self.is_over = False, True
        self.table.settle()
        while self._left or self.queue:
            (self._left.pop() if self._left else self._deliver)()
            self.table.settle()
        compact_stream(
            self.table, self.objects, STREAM, CompactOptions(0, 1, Encoding.IDENTITY, 1), keys=self.keys, now=NOW
        )
        self.table.settle()
        self.check_newest(is_end=True)
        self._check_archive()

    def _works(self) -> list[Callable[[], None]]:
        works: list[Callable[[], None]] = [self._stage] * self.rng.randrange(2, 8)
        works += [self._deliver] * self.rng.randrange(2, 8)
        works += [self._again] * self.rng.randrange(3)
        works += [self._compact] * self.rng.randrange(3)
        works += [self._lose] * self.rng.randrange(2)
        self.rng.shuffle(works)
        return works

    def _cuts(self, log: Log) -> list[int]:
        """Choose the segments' borders: some of them the same in both."""
        every = self.rng.choice([4, 6, 8])
        cuts = sorted({0, len(log.chunks), *range(0, len(log.chunks), every)})
        return [cut for cut in cuts if cut in {0, len(log.chunks)} or self.rng.random() < 0.9]

    def _stage(self) -> None:
        which = self.rng.choice([0, 0, 1])
        log, cuts = self.logs[which], self.cuts[which]
        number = self.rng.randrange(min(len(cuts) - 1, self.busy))
        first, last = cuts[number], cuts[number + 1]
        if self.rng.random() < 0.2:
            first, last = sorted(self.rng.sample(range(len(log.chunks) + 1), 2))
        data = log.segment(first, last)
        how = self.rng.random()
        if how < 0.1:
            broken = self.rng.randrange(first, last)
            at = len(log.segment(first, broken)) + CHUNK_HEADER_BYTES + self.rng.randrange(5)  # of its messages
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        elif how < 0.15:
            data = data[: -self.rng.randrange(1, 60)]
        elif (
            how < 0.3 and log.chunks[last - 1][0].type is ChunkType.USER and log.chunks[first][0].type is ChunkType.USER
        ):
            data = rebuild(data)
        offsets = Offset(log.chunks[first][0].chunk_id), log.chunks[last - 1][0].next_offset
        key = self.keys.staged(INCARNATION, *offsets)
        self.turns.switch()
        self.objects.objects.setdefault(key, data)
        there = self.objects.objects[key]
        self.staged.setdefault((key, there), False)
        info = self.objects_as_they_are().info(key)
        etag = None if info is None or self.rng.random() < 0.1 else info.etag
        event = SegmentRolled(STREAM, *offsets, len(there), self.objects.bucket, key, etag=etag)
        self.queue += [event] * self.rng.choice([1, 1, 2])

    def _deliver(self) -> None:
        if not self.queue:
            return
        event = self.queue.pop(self.rng.randrange(len(self.queue)))
        try:
            # The setting may have been changed since the copy was delivered before, and function by function.
            level = self._encodings.choice([None, 1])
            done = replace(self.uploader, zstd_level=level).upload(event)
        except (Killed, ConflictError, OutcomeUnknownError):
            self.queue.append(event)
            return
        except ObjectNotFoundError:
            if self.is_over:  # else what is archived may show by half
                raise
            self.queue.append(event)
            return
        self.outcomes.append((event, done))

    def _again(self) -> None:
        if self.outcomes:
            self.queue.append(self.rng.choice(self.outcomes)[0])

    def _lose(self) -> None:
        first = self.rng.randrange(60)
        following = first + self.rng.randrange(1, 30)
        record_loss(
            self.table,
            self.uploader.control,
            SegmentLost(STREAM, Offset(first), Offset(following), "gone"),
            lambda: NOW,
        )

    def _compact(self) -> None:
        encoding = self.rng.choice(list(Encoding))
        options = CompactOptions(0, self.rng.choice([2000, 1 << 20]), encoding, 1)
        compact_stream(self.table, self.objects, STREAM, options, keys=self.keys, now=NOW)

    # What has to be.

    def archived_chunks(self) -> Iterator[ChunkHeader]:
        """Yield the headers of all archived chunks, newest state."""
        reached = 0
        for entry in sorted(self._newest(), key=lambda entry: (entry.first_offset, -entry.next_offset)):
            if entry.next_offset <= reached:
                continue
            data = identity_of(self.objects_as_they_are(), entry)
            for chunk in iter_chunks(
                data[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes], source=entry.key
            ):
                yield chunk.header
            reached = entry.next_offset

    def objects_as_they_are(self) -> MemoryObjects:
        """Return them without dying or waiting."""
        objects = MemoryObjects()
        objects.objects = self.objects.objects
        return objects

    def check_dealt_with(self, key: str, data: bytes) -> None:
        """Hold a staged copy that is deleted to what became of it."""
        partition = self.table._partitions[INCARNATION]
        offsets = self.keys.staged_offsets(key)
        assert offsets is not None
        asides = [one for one in self.objects.objects if "/quarantine/" in one and self.objects.objects[one] == data]
        of_it = [
            one
            for one in partition.missing.values()
            if isinstance(one, Quarantine) and (one.first_offset, one.next_offset) == offsets
        ]
        self.staged[key, data] = True
        if asides:
            assert of_it, "in quarantine, and not written down"
            self._check_bad(key, data, [one.reason for one in of_it])
            return
        wanted = [_identity(chunk.header) for chunk in iter_chunks(data[SEGMENT_HEADER_BYTES:], source=key)]
        assert wanted[0][1] == offsets[0]
        held = {_identity(header) for header in self.archived_chunks()}
        lost = [one for one in wanted if one not in held]
        assert not lost, f"deleted, and not archived: {lost[:3]}"

    def _check_bad(self, key: str, data: bytes, reasons: list[str]) -> None:
        """A copy in quarantine is broken, or of another history than what is archived."""
        offsets = self.keys.staged_offsets(key)
        assert offsets is not None
        try:
            chunks = [chunk.header for chunk in iter_chunks(data[SEGMENT_HEADER_BYTES:], source=key)]
        except CorruptionError:
            return
        if data[:SEGMENT_HEADER_BYTES] != SEGMENT_HEADER or chunks[-1].next_offset != offsets[1]:
            return
        mine = {_identity(header) for header in chunks}
        archived = list(self.archived_chunks())
        for header in archived:
            if header.chunk_id >= offsets[1] or header.next_offset <= offsets[0]:
                continue
            if _identity(header) not in mine:
                return
        epochs = {header.chunk_id: header.epoch for header in chunks}
        if any(epochs.get(header.chunk_id, header.epoch) != header.epoch for header in archived):
            return  # tracking chunks of two leaders
        before = [header.epoch for header in archived if header.next_offset <= offsets[0]]
        behind = [header.epoch for header in archived if header.chunk_id >= offsets[1]]
        if before and max(before) > chunks[0].epoch:
            return
        if behind and min(behind) < chunks[-1].epoch:
            return
        raise AssertionError(f"a good copy of {offsets} is in quarantine: {reasons}")

    def _check_archive(self) -> None:
        logs = [{_identity(header) for header, _ in log.chunks} for log in self.logs]
        for (key, data), is_done in self.staged.items():
            if not is_done:
                assert self.objects.objects.get(key) == data, f"{key}: gone without a word"
        assert not [key for key in self.objects.objects if "/staging/" in key], "left behind"
        before_epoch = 0
        is_new = not self.table.earlier
        for entry in self._newest():
            data = identity_of(self.objects_as_they_are(), entry)
            chunks = list(
                iter_chunks(data[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes], source=entry.key)
            )
            self._check_entry(entry, [chunk.header for chunk in chunks])
            if entry.last_user_chunk is None:
                before_epoch = 0  # neighbours are compared, and by their user chunks
            for chunk in chunks:
                identity = _identity(chunk.header)
                assert identity in logs[0] or identity in logs[1], "invented"
                if chunk.header.type is ChunkType.USER and is_new:
                    assert chunk.header.epoch >= before_epoch, "epochs fall"
                    before_epoch = chunk.header.epoch
        head = self.table._partitions[INCARNATION].head if INCARNATION in self.table._partitions else None
        log = self._newest()
        assert head is None or not log or head.epoch == log[-1].epoch or (self.table.earlier and head.epoch is None)
        self._check_one_history(logs)

    def _check_one_history(self, logs: list[set[tuple[int, ...]]]) -> None:
        """Of each span that was staged and archived, all is of one history."""
        archived = list(self.archived_chunks())
        aside = {event for event, done in self.outcomes if done.quarantined}
        for event, done in self.outcomes:
            if event in aside or event.etag is None or done.is_stale:
                continue
            held = {
                _identity(header) for header in archived if event.first_offset <= header.chunk_id < event.next_offset
            }
            assert held <= logs[0] or held <= logs[1], f"{event} is of two histories: {done}"

    def _check_entry(self, entry: FragmentEntry, headers: list[ChunkHeader]) -> None:
        users = [header for header in headers if header.type is ChunkType.USER]
        assert entry.epoch == headers[-1].epoch
        assert entry.first_epoch == (users[0].epoch if users else None) or self.table.earlier, "first epoch"
        assert (entry.first_offset, entry.next_offset) == (headers[0].chunk_id, headers[-1].next_offset)
        assert entry.messages == sum(header.records for header in users)


def _identity(header: ChunkHeader) -> tuple[int, ...]:
    if header.type is not ChunkType.USER:
        return (1, header.chunk_id)
    return (0, header.chunk_id, header.records, header.epoch, header.timestamp, header.crc, header.data_bytes)


def _log(seed: int, fork: int, kind: str, chunks: int = 24) -> Log:
    found = []
    offset = 0
    for number in range(chunks):
        behind = number >= fork
        rng = random.Random(f"{seed} {number} {kind if behind else ''}")
        sizes = random.Random(f"{seed} {number} {kind if behind and kind == 'times' else ''}")
        is_tracking = number % 7 == 3
        messages = [rng.randbytes(sizes.randrange(5, 60)) for _ in range(sizes.randrange(1, 5))]
        tracking = TrackingRecord(TrackingType.OFFSET, b"consumer", Offset(number)).to_bytes()
        epoch = (
            2
            if behind and kind == ""
            else 1
            if kind == "" or not behind
            else {"later epoch": 3, "epoch": 1}.get(kind, 2)
        )
        header, data = make_chunk(
            [tracking] if is_tracking else messages,
            chunk_id=ChunkId(offset),
            timestamp=TimestampMs(START + number * 1000 + (behind and kind != "") * 1),
            epoch=Epoch(epoch),
            kind=ChunkType.TRACKING_DELTA if is_tracking else ChunkType.USER,
            trailer=b"" if is_tracking or number % 3 else tracking,
        )
        found.append((header, data))
        offset = header.next_offset
    return Log(tuple(found))
