"""A manifest that changes while it is read, and shows its changes by halves: every answer held against every moment.

A history is a list of changes, each planned on all that came before. The table that is asked starts somewhere in it;
at every item that a read finds, further changes may come, and what is being written is old or new. An answer is right
if it is that of some moment of the request. Changes that were still being written when it began may come at any.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, combinations, islice
from typing import Protocol

from coldstream.archive.missing import record_missing
from coldstream.errors import BelowFloorError, LostRaceError, RemovedError, StreamNotFoundError
from coldstream.format.chunk import ChunkType
from coldstream.manifest.commit import Change
from coldstream.manifest.entry import Encoding, FragmentEntry, Gap, Head, Loss, Missing
from coldstream.manifest.groups import CompactionPolicy, plan_groups
from coldstream.manifest.spec import LAST, NEXT, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.state import ManifestState
from coldstream.manifest.stream import Incarnation
from coldstream.resolve.answer import Answer, Bounds
from coldstream.resolve.attach import Attachment, attach
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.places import exact_place
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.resolve.tail import Tail
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, Spec, StoredChunk, holes
from tests.support.compaction import Compaction
from tests.support.removing import delete, remove_prefix, undelete

INCARNATION = STREAM.incarnation

Start = OffsetSpec | Cursor
Found = tuple[str, int, int]
"""What is at the start: a chunk and its id, a gap and its offsets, or the tail."""

NOTHING: Found = ("nothing", 0, 0)


class RecordingTable(MemoryTable):
    """Keeps each change, and the state after it."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Change] = []
        self.states: list[ManifestState] = [ManifestState()]

    def apply(self, change: Change) -> None:
        super().apply(change)
        self.changes.append(change)
        self.states.append(self._partitions[INCARNATION])


@dataclass
class WeakHistory:
    """Changes to a stream, and what each start has to be answered with after so many of them."""

    archive: ChunkArchive = field(default_factory=lambda: ChunkArchive(sparse_bytes=60))

    def __post_init__(self) -> None:
        self.archive.table = self.table = RecordingTable()
        self._archived: dict[int, list[StoredChunk]] = {}

    @property
    def starts(self) -> list[Start]:
        """Every start that may be asked for."""
        chunks = self.archive.chunks
        times = [chunk.header.timestamp for chunk in chunks] or [0]
        offsets = [Offset(offset) for offset in range((chunks[-1].header.next_offset if chunks else 0) + 8)]
        return [
            AtEnd("first"),
            LAST,
            NEXT,
            *(AtOffset(offset) for offset in offsets),
            *(Cursor(INCARNATION, offset) for offset in offsets),
            *(AtTimestamp(TimestampMs(at)) for at in range(min(times) - 1, max(times) + 2)),
        ]

    def right(self, first: int, last: int, start: Start) -> set[Found]:
        """Return what reading all chunks says at each moment from one to another, each after so many changes.

        Of losses that were written in between, any may count: they are only ever added to.
        """
        if any(_is_deleted(self.table.states[moment].head) for moment in range(first, last + 1)):
            # Lookups that see no head do not know that the stream is deleted: then they answer as if it was not.
            alone = {NOTHING}
        else:
            alone = set()
        before = self.table.states[first].missing
        since = [one for key, one in self.table.states[last].missing.items() if key not in before]
        some = chain.from_iterable(combinations(since, number) for number in range(len(since) + 1))
        lost = [_offsets([*before.values(), *those]) for those in some]
        moments = range(first, last + 1)
        return alone | {
            found_at(self._chunks(moment), those, start, self.table.states[moment].head)
            for moment in moments
            for those in lost
        }

    def _chunks(self, moment: int) -> list[StoredChunk]:
        if moment not in self._archived:
            entries = self.table.states[moment].entries.values()
            self._archived[moment] = [
                chunk
                for chunk in self.archive.chunks
                if any(entry.first_offset <= chunk.header.chunk_id < entry.next_offset for entry in entries)
            ]
        return self._archived[moment]


def _offsets(missing: Iterable[Missing]) -> set[int]:
    return {offset for one in missing for offset in range(one.first_offset, one.next_offset)}


def _is_deleted(head: Head | None) -> bool:
    return head is not None and head.is_deleted


def found_at(chunks: Sequence[StoredChunk], lost: set[int], start: Start, head: Head | None) -> Found:
    """Return what reading all chunks says."""
    if not chunks:
        return NOTHING if head is None or head.next_offset is None else _emptied(int(head.next_offset), lost, start)
    tail = int(chunks[-1].header.next_offset)
    match start:
        case AtEnd("next"):
            return "tail", tail, 0
        case AtEnd("last"):
            users = [chunk for chunk in chunks if chunk.header.type is ChunkType.USER]
            return _chunk(users[-1]) if users else _past(tail, tail, lost)
        case AtTimestamp(timestamp):
            return _late(chunks, lost, timestamp)
        case AtOffset(offset) | Cursor(next_offset=offset):
            return _at(chunks, lost, int(offset), exactly=isinstance(start, Cursor))
    return _chunk(chunks[0])


def _emptied(floor: int, lost: set[int], start: Start) -> Found:
    """Return what is at a start in a log that lost all of its entries."""
    match start:
        case AtEnd("next"):
            return "tail", floor, 0
        case Cursor(next_offset=offset) if offset < floor:
            return "gap", int(offset), floor
        case AtOffset(offset) | Cursor(next_offset=offset):
            return _past(floor, max(int(offset), floor), lost)
    return _past(floor, floor, lost)


def _late(chunks: Sequence[StoredChunk], lost: set[int], timestamp: int) -> Found:
    late = next((chunk for chunk in chunks if chunk.header.timestamp >= timestamp), None)
    if late is None:
        tail = int(chunks[-1].header.next_offset)
        return _past(tail, tail, lost)
    hole = next((hole for hole in holes(chunks) if hole[1] == late.header.chunk_id), None)
    return _chunk(late) if hole is None else ("gap", *hole)


def _at(chunks: Sequence[StoredChunk], lost: set[int], offset: int, *, exactly: bool) -> Found:
    first, tail = int(chunks[0].header.chunk_id), int(chunks[-1].header.next_offset)
    if offset >= tail:
        return _past(tail, offset, lost)
    if exactly and offset < first:
        return "gap", offset, first
    hole = next((hole for hole in holes(chunks) if hole[0] <= offset < hole[1]), None)
    if hole is not None:
        return "gap", *hole
    return _chunk(next((chunk for chunk in reversed(chunks) if chunk.header.chunk_id <= offset), chunks[0]))


def _chunk(chunk: StoredChunk) -> Found:
    return "chunk", int(chunk.header.chunk_id), 0


def follows(answer: Answer) -> Found:
    """Say what an answer ends with."""
    if answer.gap is not None:
        return _gap(answer.gap)
    return ("cursor", 0, 0) if answer.tail is None else ("tail", int(answer.tail), 0)


def _gap(gap: Gap) -> Found:
    return "gap", int(gap.first_offset), int(gap.next_offset)


def _past(tail: int, offset: int, lost: set[int]) -> Found:
    if offset not in lost:
        ends = [one + 1 for one in lost if tail <= one < offset and one + 1 not in lost]
        return "tail", max([tail, *ends]), 0
    first, following = offset, offset
    while first > tail and first - 1 in lost:
        first -= 1
    while following in lost:
        following += 1
    return "gap", first, following


class Choices(Protocol):
    """What is left open."""

    def __call__(self, number: int) -> int:
        """Choose a number below that."""
        ...

    def comes(self) -> bool:
        """Choose whether a change comes now."""
        ...


class Chance:
    """Chooses by chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self, number: int) -> int:
        return self._rng.randrange(number)

    def comes(self) -> bool:
        return self._rng.random() < 0.25


class Script:
    """Chooses as it is told, and the first there is after that."""

    def __init__(self, told: Sequence[int] = ()) -> None:
        self._told = told
        self._made: list[tuple[int, int]] = []

    def __call__(self, number: int) -> int:
        at = len(self._made)
        choice = self._told[at] if at < len(self._told) else 0
        self._made.append((choice, number))
        return choice

    def comes(self) -> bool:
        return False

    def next(self) -> Script | None:
        """Return the script after this one, which was played to its end; None after the last."""
        while self._made:
            choice, number = self._made.pop()
            if choice + 1 < number:
                return Script([*(made for made, _ in self._made), choice + 1])
        return None


class WeakTable(MemoryTable):
    """A table to which the changes of a history come while it is read, when and in which order it chooses.

    Its index by time shows each item as it was after any of the last changes, however long ago all that was written.
    """

    def __init__(self, history: WeakHistory, moment: int, choose: Choices, *, lag: int = 4) -> None:
        super().__init__(self)
        self._history = history
        self._choose = choose
        self._lag = lag
        self._is_open = False
        self.moment = self.begun = 0
        for _ in range(moment):
            self._come()
        self.settle()
        self.settled = self.moment

    def write(self) -> None:
        """Have the rest of the history come at once: all of it is being written, as far as it can be."""
        while self.moment < len(self._history.table.changes):
            self._come()

    def pick(self, _: str, states: int) -> int:
        """Let changes come, and show one state of an item."""
        while self._is_open and self.moment < len(self._history.table.changes) and self._choose.comes():
            if not self._come():
                break
        return self._choose(states) if self._is_open and states > 1 else states - 1

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        states = self._history.table.states[max(0, self.moment - self._lag) : self.moment + 1]
        ends = sorted({end for state in states for end in state.entries})
        shown = [states[self._choose(len(states))].entries.get(end) for end in ends]
        late = [entry for entry in shown if entry is not None and entry.running_timestamp >= timestamp]
        late.sort(key=lambda entry: (entry.running_timestamp, entry.next_offset))
        head = states[self._choose(len(states))].head
        return LogPage(tuple(late[:limit]), head if len(late) <= limit else None)

    def ask(self, start: Start, limit: int) -> Found:
        """Say where a start attaches. Raises UnavailableError."""
        with self._changing():
            try:
                found = attach(self, STREAM, start, limit)
            except StreamNotFoundError:
                return NOTHING
        match found:
            case Gap():
                return _gap(found)
            case Tail(next_offset):
                return "tail", int(next_offset), 0
        return "chunk", self._chunk(found, start), 0

    def ask_ranges(self, start: Start, bounds: Bounds) -> Answer | None:
        """Answer a request, None where nothing is archived. Raises UnavailableError."""
        request = ResolveRequest(STREAM, start, bounds)
        with self._changing():
            try:
                return resolve(request, self, self._history.archive.objects, now=NOW, url_expiry_s=60)
            except StreamNotFoundError:
                return None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let changes come meanwhile; before, all that is being written may come to its end."""
        if self.settled < self.moment and self._choose(2):
            self.settle()
            self.settled = self.moment
        self.begun = min(self.moment, self.settled)
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def _chunk(self, found: Attachment, start: Start) -> int:
        match start:
            case AtOffset() | AtTimestamp():
                return exact_place(self._history.archive.objects, found.entries[0], start).chunk_id
            case Cursor(next_offset=offset):
                return exact_place(self._history.archive.objects, found.entries[0], AtOffset(offset)).chunk_id
            case _:
                return found.start.chunk_id

    def _come(self) -> bool:
        try:
            self.apply(self._history.table.changes[self.moment])
        except LostRaceError:  # it touches what another is still writing
            return False
        self.moment += 1
        return True


def random_history(rng: random.Random, *, removals: int = 0) -> WeakHistory:
    """Make a history of appends, late fills, clocks that run backwards, tracking chunks, losses and compactions.

    The more `removals`, the more often retention takes the first fragments, or the stream is deleted and undeleted.
    """
    history = WeakHistory()
    archive, offset, now = history.archive, rng.choice([0, 0, 7]), 20
    late: list[FragmentEntry] = []
    for _ in range(rng.randrange(4, 12)):
        match rng.choice(["append"] * 5 + ["fill"] * 3 + ["lose", "compact"] + ["remove"] * removals):
            case "fill" if late:
                _commit_late(archive, late.pop(rng.randrange(len(late))))
            case "remove":
                _remove(rng, archive)
            case "lose":
                first = rng.randrange(max(0, offset - 4), offset + 6)
                lost = Loss(Offset(first), Offset(first + rng.randrange(1, 5)), "lost", NOW)
                with suppress(RemovedError):
                    record_missing(archive.table, STREAM, lost)
            case "compact":
                _compact(rng, archive)
            case _:
                specs = []
                for _ in range(rng.randrange(1, 3)):
                    kind = rng.choice([ChunkType.USER] * 2 + [ChunkType.TRACKING_DELTA])
                    specs.append(Spec(1 if kind is not ChunkType.USER else rng.randrange(1, 3), now, kind))
                    now += rng.choice([0, 1, 2, 2, -6])
                entry = archive.put(offset, specs)
                offset = entry.next_offset
                if rng.random() < 0.35:
                    late.append(entry)
                else:
                    _commit_late(archive, entry)
    while late:
        _commit_late(archive, late.pop())
    return history


def _commit_late(archive: ChunkArchive, entry: FragmentEntry) -> None:
    """Commit an entry, unless it lies in what was removed."""
    with suppress(BelowFloorError):
        archive.commit(entry)


def _remove(rng: random.Random, archive: ChunkArchive) -> None:
    for _ in Compaction(archive).finish():
        pass
    head = archive.table.head(INCARNATION)
    if head is None:
        return
    if rng.random() < 0.3:
        delete(archive.table, INCARNATION)
        undelete(archive.table, INCARNATION)
    else:
        remove_prefix(archive.table, INCARNATION, rng.randrange(1, 5))


def _compact(rng: random.Random, archive: ChunkArchive) -> None:
    compaction = Compaction(archive)
    for _ in compaction.finish():
        pass
    policy = CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), 10_000, Encoding.IDENTITY)
    groups = list(plan_groups(compaction.log(), policy))
    if groups:
        group = rng.choice(groups)
        steps: Iterator[None] = compaction.replace(group, compaction.store(group, Encoding.IDENTITY))
        for _ in islice(steps, rng.choice([1, 100])):
            pass
