"""What has to be true of a play at its end, and what may happen in it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from coldstream.format.chunk import ChunkType
from tests.simulation.cluster import ClusterReplica

if TYPE_CHECKING:
    from tests.simulation.play import SimulatedWorld


def is_safe(world: SimulatedWorld, replica: ClusterReplica, path: Path) -> bool:
    """Tell whether retention may delete a file without anything being lost: it is archived, or this agent has it."""
    after = next((int(one.stem) for one in replica.segments if int(one.stem) > int(path.stem)), None)
    if after is None or after > replica.next_offset:
        return False
    covered = int(path.stem)
    for entry in sorted(world.stores.table.state.entries.values(), key=lambda one: one.next_offset):
        if entry.first_offset <= covered:
            covered = max(covered, entry.next_offset)
    head = world.stores.head
    if after <= max(covered, 0 if head is None else head.floor):
        return True
    pins = world.agents[replica.number].pins
    for before, later in pairwise(replica.on_disk):
        if path in {before.path, later.path} and before.chunks[-1].header.epoch != later.chunks[0].header.epoch:
            last, first = before.chunks[-1].header, later.chunks[0].header
            if not (pins / f"{first.chunk_id:020}-{last.epoch}-{first.epoch}.succession").exists():
                return False
    pin = pins / path.name
    return pin.exists() and pin.samefile(path)


def is_settled(world: SimulatedWorld) -> bool:
    """Tell whether nothing is left to do."""
    return not unsettled(world)


def unsettled(world: SimulatedWorld) -> str:
    """Say what is left to do."""
    head = world.stores.head
    leader = world.stream.leader
    assert leader is not None
    # What the broker does not deliver, tracking chunks at a segment's end, is proven by a message that follows.
    last = next((one.header.chunk_id for one in reversed(world.stream.log) if one.header.type is ChunkType.USER), 0)
    rolled = max((at for one in leader.segments if (at := int(one.stem)) <= last), default=0)
    if head is None or head.next_offset is None or head.next_offset < rolled:
        return f"archived to {head and head.next_offset}, rolled to {rolled}"
    if not world.queue.is_empty:
        return "events are on their way"
    for agent in world.agents:
        if not agent.has_told_all:
            return f"agent {agent.replica.number} suspects losses"
    for reader in world.readers:
        if reader.lacks:
            return f"{reader.name} is at {reader.position} of {world.stream.next_offset}"
    return world.front.unsettled() or world.others.unsettled()


def judge(world: SimulatedWorld) -> None:
    """Hold the archive against what was confirmed, and consumers against both."""
    head = world.stores.head
    assert head is not None
    assert not world.queue.quarantined, f"in quarantine: {world.queue.quarantined}"
    found = {chunk.header.chunk_id: raw for chunk, raw in world.stores.chunks()}
    missing = {
        at for one in world.stores.table.state.missing.values() for at in range(one.first_offset, one.next_offset)
    }
    confirmed = {chunk.header.chunk_id: chunk for chunk in world.stream.log}
    for chunk_id, raw in found.items():
        assert chunk_id in confirmed, f"{chunk_id} is archived, and nobody confirmed it"
        assert world.stores.erased.form_of(confirmed[chunk_id]) == raw, f"{chunk_id} is archived with other bytes"
    end = head.next_offset
    assert end is not None
    for chunk_id, chunk in confirmed.items():
        if chunk_id in found or chunk_id < head.floor or chunk_id >= end:
            continue
        told = f"{chunk_id} to {chunk.header.next_offset}, epoch {chunk.header.epoch}, is not archived"
        assert world.loses, told
        assert missing.issuperset(range(chunk_id, chunk.header.next_offset)), f"{told}, untold"
    world.stores.erased.check_bucket()
    for reader in world.readers:
        assert world.loses or not reader.skipped, f"{reader.name} skipped {reader.skipped}"
