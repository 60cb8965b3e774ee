"""Several agents of one cluster: each beside a replica of the same stream, all at one archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coldstream.agent.proof.broker import BrokerProver
from coldstream.format.chunk import Chunk
from coldstream.manifest.spec import OffsetSpec
from coldstream.store.memory.objects import MemoryObjects
from tests.support.replica import Replica
from tests.support.rig import Rig


class ReplicaNode(BrokerProver):
    """One of the nodes that have a replica, by its place among them: 0 is the leader's."""

    def __init__(self, stream: Replica, place: int, nodes: int) -> None:
        self.stream = stream
        self.at = place
        self.nodes = nodes

    async def login(self) -> None:
        pass

    async def members(self, vhost: str, name: str) -> int:
        return self.nodes

    async def place(self, vhost: str, name: str) -> int:
        return self.at

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        return await self.stream.probe(vhost, name, spec)


class CountingObjects(MemoryObjects):
    """Objects of a bucket that counts the bytes that are sent to its staging area."""

    staged_bytes = 0

    def put_new(self, key: str, body: Any, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        if "staging" in key:
            self.staged_bytes += size_bytes
        super().put_new(key, body, size_bytes=size_bytes, crc32=crc32, note=note)


def replica_rigs(tmp_path: Path, stream: Replica, number: int) -> Iterator[Rig]:
    """Return the rigs of the agents beside so many replicas, the leader's first; they share bus, archive and disk."""
    first: Rig | None = None
    for place in range(number):
        node: Any = ReplicaNode(stream, place, number)
        rig = Rig(tmp_path / f"node-{place}", node, stream)
        if first is None:
            first = rig
            rig.archive.use(objects=CountingObjects())
        rig.archive, rig.bus = first.archive, first.bus
        yield rig
