"""Consumers: shipped code that reads the archive, then a node, and the archive again; killed, and sent to other nodes.

What a consumer gives is held against what was confirmed as it comes.
"""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_left
from contextlib import suppress
from typing import Any

from coldstream.consumer.batch import BatchItem, ChunkBatch, SkippedGap
from coldstream.consumer.follower import StreamFollower
from coldstream.errors import GapError, IncarnationError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from tests.simulation.archive_source import NAME, SimulatedArchive
from tests.simulation.cluster import ReplicatedStream
from tests.simulation.erased import ErasedMessages
from tests.simulation.gaps import problem_of, problem_of_beginning
from tests.simulation.node_source import NodeSource


class SimulatedReader:
    """A consumer, and what it was given: each confirmed message once, in order, byte for byte, or this raises.

    Unless it `may_skip`, nothing may be lost, and a gap ends the consumer.

    `position` is the offset after the last chunk. It goes on from there after it was killed: by the offset that it has
    stored at the broker, or if it stores none, by a start at that offset. A start is "that offset, or the first one
    after it": while nothing before it is archived, neither the consumer nor the archive can know whether something is
    still to come. So what neither its node nor the archive has then may be passed by; `began_later` counts these.
    """

    def __init__(
        self,
        name: str,
        stream: ReplicatedStream,
        archive: SimulatedArchive,
        rng: random.Random,
        erased: ErasedMessages,
        *,
        may_skip: bool,
    ) -> None:
        self.name = name
        self.position = Offset(0)
        self.skipped: list[Gap] = []
        self.chunks = 0
        self.began_later = self.ended = 0
        self._is_first = False
        self._stores_offsets = rng.random() < 0.5
        self.source = NodeSource(stream, rng)
        self._stream = stream
        self.archive = archive
        self._rng = rng
        self._erased = erased
        self._may_skip = may_skip
        self._moved_at = time.monotonic()
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Start, or go on at its position."""
        if self._task is None:
            self._is_first = True
            self.source.begin(Offset(self.position - 1) if self._stores_offsets and self.position else None)
            follower = StreamFollower(
                NAME,
                AtOffset(self.position) if self.position else FIRST,
                broker=self.source,
                archive=self.archive,
                give=self._take,
                reference="progress",
                on_gap="skip" if self._may_skip else "raise",
            )
            self._task = asyncio.create_task(follower.run())

    async def kill(self) -> None:
        """End, in the midst of anything."""
        self.check()  # it may have ended by itself since the last look
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def check(self) -> None:
        """Raise what ended it, if anything did, unless its user would start it again.

        That is for a gap that has no reason yet, and for offsets that are nowhere for `catchup.ARCHIVE_WAIT_S`. The
        latter never end for one that has read from nodes alone, if its last chunk is not archived: it cannot prove that
        what is archived is of the same incarnation. Started again, it has no chunk to compare.
        """
        if self._task is not None and self._task.done():
            try:
                self._task.result()
            except GapError as err:
                if err.reason is not None or self._may_skip:
                    raise
                self._start_again()
            except UnavailableError:
                self._start_again()
            except (IncarnationError, StreamNotFoundError):
                # A deleted stream is as one that never was: who had read it, and needs more, ends.
                if not self.archive.resolver.was_deleted():
                    raise
                self._start_again()

    def _start_again(self) -> None:
        self.ended += 1
        self._task = None
        self.start()

    @property
    def lacks(self) -> int:
        """How many offsets are left to give."""
        users = [one for one in self._stream.log[-20:] if one.header.type is ChunkType.USER]
        return max(0, (users[-1].header.next_offset if users else 0) - self.position)

    async def _take(self, item: BatchItem) -> None:
        if self._rng.random() < 0.1:
            await asyncio.sleep(self._rng.choice([0.1, 5, 600]))
        if isinstance(item, SkippedGap):
            assert self._may_skip
            problem = problem_of(item.gap, self.archive.resolver.seen, self.source, self._moved_at)
            assert not problem, f"{self.name} is told of {item.gap}, but {problem}"
            self._is_first = False
            self.skipped.append(item.gap)
            self.position = max(self.position, item.gap.next_offset)
            self._moved_at = time.monotonic()
        elif isinstance(item, ChunkBatch):
            for chunk in item.chunks:
                if chunk.header.type is ChunkType.USER:
                    if self._is_first:
                        self._begin(chunk)
                    self._is_first = False
                    self._check(chunk)
            self._moved_at = time.monotonic()

    def _begin(self, chunk: Chunk) -> None:
        """Take the first chunk since the start: one that begins later, if it may."""
        first_offset, seen = Offset(chunk.header.chunk_id), self.archive.resolver.seen
        begin, end = bisect_left(self._stream.ids, self.position), bisect_left(self._stream.ids, first_offset)
        passed_by = [one for one in self._stream.log[begin:end] if one.header.type is ChunkType.USER]
        head = None if seen is None else seen.head
        archived_from = None if head is None or head.is_deleted else head.first_offset
        is_before_all = not self.position if archived_from is None else self.position < archived_from
        if passed_by and is_before_all and self.source.stored is None:
            problem = problem_of_beginning([Offset(one.header.chunk_id) for one in passed_by], seen, self.source)
            assert not problem, f"{self.name} begins at {first_offset}, but {problem}"
            self.began_later += 1
            self.position = first_offset

    def _check(self, chunk: Chunk) -> None:
        ids, log = self._stream.ids, self._stream.log
        at = bisect_left(ids, self.position + 1) - 1 if self.position else 0
        while at < len(log) and (
            log[at].header.next_offset <= self.position or log[at].header.type is not ChunkType.USER
        ):
            at += 1
        assert at < len(log), f"{self.name} is given {chunk.header.chunk_id}, which nobody confirmed"
        expected = log[at]
        told = (
            f"{self.name} is given {chunk.header.chunk_id} of epoch {chunk.header.epoch} in place of {expected.header}"
        )
        assert chunk.header.chunk_id == expected.header.chunk_id, told
        problem = self._erased.problem_of(expected, chunk.header.to_bytes() + bytes(chunk.data))
        assert not problem, f"{told}, {problem}"
        self.position = Offset(chunk.header.next_offset)
        self.chunks += 1
