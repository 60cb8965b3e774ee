"""Three replicas of one stream: a leader that writes, followers that lag, and what a majority has is confirmed.

A leader that is cut off from the others goes on writing. What it writes alone is confirmed to nobody, and cut off again
when it comes back and finds another leader. Each replica rolls its segments and has its own retention.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from pathlib import Path

from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkType
from coldstream.manifest.spec import AtEnd, AtOffset, OffsetSpec
from coldstream.units import Offset
from tests.explore.base import INCARNATION
from tests.support.replica import Replica, Written

NODES = 3
NOTHING = memoryview(b"")


class ClusterReplica(Replica):
    """The replica of one node. `log`, what is confirmed, is the cluster's; `alone` is what this replica has beside it.

    `end` is the offset after its last chunk. `is_cut` says that it reaches no other node.
    """

    def __init__(self, data: Path, number: int, log: list[Written], ids: list[int], max_segment_bytes: int) -> None:
        super().__init__(data, max_segment_bytes=max_segment_bytes, seed=number)
        self.directory.rmdir()
        self.incarnation = INCARNATION
        self.directory = data / INCARNATION
        self.directory.mkdir()
        self.number = number
        self.log = log
        self.ids = ids
        self.end = Offset(0)
        self.is_cut = False

    @property
    def agreed_end(self) -> int:
        """Where what nobody can take from it ends: who was cut off may have others' offsets with chunks of its own."""
        return self.alone[0].header.chunk_id if self.alone else self.end

    @property
    def confirmed(self) -> range:
        """Which chunks of the log it has on its disk."""
        last = min(self.end, self.next_offset)
        return range(bisect_left(self.ids, self.kept_from), bisect_left(self.ids, last))

    async def members(self, vhost: str, name: str) -> int:
        return NODES

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        if self.is_down:
            raise UnavailableError("the broker is down")
        if (vhost, name) != (self.vhost, self.name):
            raise StreamNotFoundError(name)
        here = self.confirmed
        match spec:
            case AtOffset(offset):
                begin = max(here.start, bisect_left(self.ids, offset + 1) - 1)
            case AtEnd("first"):
                begin = here.start
            case _:
                raise NotImplementedError(spec)
        for chunk in self.log[begin : here.stop]:
            wanted = spec.offset if isinstance(spec, AtOffset) else 0
            if chunk.header.type is ChunkType.USER and chunk.header.next_offset > wanted:
                return delivered(chunk)
        return None

    def attach(self, spec: OffsetSpec) -> int:
        """Return the number of the chunk that a consumer begins with; past the end, of the one that comes next."""
        here = self.confirmed
        match spec:
            case AtOffset(offset):
                at = max(here.start, bisect_left(self.ids, offset + 1) - 1)
                if at < here.stop and self.log[at].header.next_offset <= offset:
                    at += 1  # past the end
                return min(at, here.stop)
            case AtEnd("first"):
                return here.start
            case AtEnd("next"):
                return here.stop
            case _:
                raise NotImplementedError(spec)

    def take(self, chunk: Written) -> None:
        """Write a chunk that is not confirmed yet."""
        self.alone.append(chunk)
        self._append(chunk)

    def catch_up(self, chunks: int) -> None:
        """Replicate so many confirmed chunks more."""
        if not self.alone:
            begin = bisect_left(self.ids, self.end)
            for chunk in self.log[begin : begin + chunks]:
                self._append(chunk)

    def truncate(self) -> None:
        super().truncate()
        last = self.on_disk[-1].chunks[-1:] if self.on_disk else []
        self.end = Offset(last[0].header.next_offset) if last else self.kept_from

    def make_anew(self, first_offset: Offset) -> None:  # type: ignore[override]
        """Delete every file, and replicate again from where the others begin."""
        for path in self.segments:
            path.unlink()
        self.on_disk, self.alone = [], []
        self.kept_from = self.end = first_offset

    def _append(self, chunk: Written) -> None:
        super()._append(chunk)
        self.end = Offset(chunk.header.next_offset)

    def _replicate(self) -> None:
        """Do nothing: `catch_up` does."""


class ReplicatedStream:
    """The stream. `leader` is None while there is none."""

    def __init__(self, directory: Path, rng: random.Random, max_segment_bytes: int) -> None:
        self.rng = rng
        self.log: list[Written] = []
        self.ids: list[int] = []
        self.replicas: list[ClusterReplica] = []
        for number in range(NODES):
            data = directory / f"node-{number}/data"
            data.mkdir(parents=True)
            self.replicas.append(ClusterReplica(data, number, self.log, self.ids, max_segment_bytes))
        self.leader: ClusterReplica | None = self.replicas[0]
        self.epoch = 1
        self.now_ms = 0

    @property
    def next_offset(self) -> Offset:
        """The end of what is confirmed."""
        return self.replicas[0].next_offset

    def write(self, writer: ClusterReplica, chunks: int, *, tracks: bool) -> None:
        """Have a leader, or one that still believes that it is, write chunks; what a majority has is confirmed."""
        writer.epoch = writer.epoch if writer is not self.leader else self.epoch
        for _ in range(chunks):
            end = writer.alone[-1].header.next_offset if writer.alone else writer.end
            writer.now = self.now_ms  # type: ignore[assignment]
            if tracks and self.rng.random() < 0.1:
                chunk = writer._written([b"\x01\x01c" + bytes(8)], Offset(end), ChunkType.TRACKING_DELTA)
            else:
                chunk = writer._make(Offset(end), self.rng.randrange(1, 4), 60, 0)
            writer.take(chunk)
        self.replicate()

    def replicate(self) -> None:
        """Bring what the leader has to whom it reaches, some of it; confirm what a majority has."""
        leader = self.leader
        if leader is None or leader.is_down or leader.is_cut:
            return
        for follower in self.replicas:
            if follower is leader or follower.is_down or follower.is_cut:
                continue
            self._join(follower)
            if follower.end >= self.next_offset:
                left = [chunk for chunk in leader.alone if chunk.header.chunk_id >= follower.end]
                for chunk in left[: self.rng.choice([0, 1, len(left), len(left)])]:
                    follower.take(chunk)
        self._confirm(leader)

    def elect(self) -> ClusterReplica | None:
        """Have a majority elect a leader, one that has all that is confirmed. None if there is no majority."""
        able = [one for one in self.replicas if not (one.is_down or one.is_cut)]
        if len(able) <= NODES // 2:
            return None
        self.leader = self.rng.choice([one for one in able if one.agreed_end >= self.next_offset])
        self.epoch += 1
        return self.leader

    def _join(self, follower: ClusterReplica) -> None:
        """Have a follower cut off what the leader has not, and take some of what it lacks."""
        leader = self.leader
        assert leader is not None
        begin = leader.kept_from
        if [one for one in follower.alone if one not in leader.alone]:
            follower.truncate()
        if follower.end < begin:
            follower.make_anew(begin)  # the leader's retention was faster
        follower.catch_up(self.rng.choice([1, 5, 1000, 1000]))

    def _confirm(self, leader: ClusterReplica) -> None:
        while leader.alone:
            chunk = leader.alone[0]
            having = [one for one in self.replicas if any(mine is chunk for mine in one.alone)]
            if len(having) <= NODES // 2:
                return
            for one in having:
                one.alone.remove(chunk)
            self.log.append(chunk)
            self.ids.append(chunk.header.chunk_id)


def delivered(chunk: Written) -> Chunk:
    """Return a chunk as a broker delivers it."""
    return Chunk(chunk.header, 0, NOTHING, memoryview(chunk.raw)[CHUNK_HEADER_BYTES:], NOTHING)
