"""What a store job knows of the streams that it records: what of each is read, archived, lost, or at its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coldstream.agent.recording.plan import RecordingWatch
from coldstream.format.chunk import ChunkHeader
from coldstream.jobs.run import JobRun
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset, TimestampMs

STARTS = "starts"
"""In the cursor: the first offset of each stream of which nothing was archived, by its name."""


@dataclass(slots=True)
class StoredStream:
    """One incarnation: where its archive ended when this attempt came to it, and the chunks that are not archived yet.

    Of each such chunk it keeps the offset after it, its messages, and its time.
    """

    stream: StreamId
    archived_to: Offset
    waiting: deque[tuple[Offset, int, TimestampMs]] = field(default_factory=deque)
    end: Offset | None = None

    def advance(self, archived_to: Offset) -> tuple[int, int]:
        """Take over how far the archive reaches; return how many offsets and messages that is more."""
        if archived_to <= self.archived_to:
            return 0, 0
        offsets = archived_to - self.archived_to
        messages = 0
        is_known = bool(self.waiting) and self.waiting[0][0] - self.waiting[0][1] <= self.archived_to
        while self.waiting and self.waiting[0][0] <= archived_to:
            messages += self.waiting.popleft()[1]
        self.archived_to = archived_to
        # What an earlier attempt had read is not known by its chunks: then an offset counts as a message.
        return offsets, messages if is_known else offsets


class StoreWatch(RecordingWatch):
    """Keeps account for one attempt. For its event loop alone."""

    def __init__(self, run: JobRun, table: ManifestReads) -> None:
        self._run = run
        self._table = table
        self._said: dict[tuple[str, str], str] = {}
        self.streams: dict[Incarnation, StoredStream] = {}
        self.waiting: dict[tuple[str, str], str] = {}
        self.newest: dict[tuple[str, str], Incarnation] = {}

    async def begins(self, stream: StreamId, offset: Offset) -> None:
        """Write down where a stream begins: another attempt must begin there, too, until something is archived."""
        starts = {**self._run.cursor.get(STARTS, {}), stream.name: offset}
        self._run.advance(cursor={**self._run.cursor, STARTS: starts})
        await asyncio.to_thread(self._run.checkpoint)

    async def records(self, stream: StreamId, offset: Offset) -> None:
        """Ask the table where the archive of a stream ends, once."""
        place = (stream.vhost, stream.name)
        self.waiting.pop(place, None)
        if self._said.pop(place, None) is not None or stream.incarnation not in self.streams:
            self._run.say(f"records {stream} from offset {offset} on")
        self.newest[place] = stream.incarnation
        if stream.incarnation not in self.streams:
            head = await asyncio.to_thread(self._table.head, stream.incarnation)
            archived_to = offset if head is None or head.next_offset is None else head.next_offset
            self.streams[stream.incarnation] = StoredStream(stream, archived_to)

    def recorded(self, stream: StreamId, header: ChunkHeader) -> None:
        """Keep a chunk until it is archived."""
        self.streams[stream.incarnation].waiting.append((header.next_offset, header.records, header.timestamp))

    def lost(self, stream: StreamId, first_offset: Offset, next_offset: Offset, reason: str) -> None:
        """Skip what is gone, by name."""
        if next_offset > first_offset:
            what = f"offsets {first_offset} to {next_offset - 1} of {stream}"
            self._run.skip(what, next_offset - first_offset, reason)

    def ended(self, stream: StreamId, next_offset: Offset) -> None:
        """Note the end of a stream."""
        self.streams[stream.incarnation].end = next_offset

    def waits(self, vhost: str, name: str, why: str) -> None:
        """Say once why nothing comes of a stream."""
        self.waiting[vhost, name] = why
        if self._said.get((vhost, name)) != why:
            self._said[vhost, name] = why
            self._run.say(f"stream {name!r} is not recorded: {why}")

    def tell(self, archived_to: Mapping[Incarnation, Offset], bytes_: int, now: Callable[[], TimestampMs]) -> None:
        """Tell the job how far all streams are."""
        offsets = messages = 0
        for incarnation, reached in archived_to.items():
            if (stored := self.streams.get(incarnation)) is not None:
                more_offsets, more_messages = stored.advance(reached)
                offsets += more_offsets
                messages += more_messages
        oldest = min((one.waiting[0][2] for one in self.streams.values() if one.waiting), default=None)
        lag_ms = 0 if oldest is None else max(0, now() - oldest)
        done = self._run.progress.done + offsets
        self._run.advance(done=done, messages=messages, bytes_=bytes_, lag_ms=lag_ms)

    def is_archived_to_its_end(self, place: tuple[str, str]) -> bool:
        """Tell whether a stream has come to the plan's end, and all before that is in the archive."""
        stored = self.streams.get(self.newest.get(place, Incarnation("")))
        return stored is not None and stored.end is not None and stored.archived_to >= stored.end
