"""A stream of this node at one moment, as the agent shows it."""

from __future__ import annotations

from typing import Protocol

from coldstream.agent.disk.retention import retention_left_s
from coldstream.agent.disk.segments import StreamDisk
from coldstream.agent.losses import Losses
from coldstream.agent.monitor.status import StreamStatus
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.proof.management import BrokerStream
from coldstream.units import Offset, now_ms


class Archiving(Protocol):
    """The archiver of a stream, as far as it is shown."""

    disk: StreamDisk
    identity: StreamIdentity
    losses: Losses
    state: str
    archived_to: Offset | None

    @property
    def last_failure(self) -> str | None:
        """What failed last, None when all goes well."""
        ...


def snapshot(archiver: Archiving, known: BrokerStream | None) -> StreamStatus:
    """Look at the disk, and put together what is to be shown; `known` is what the broker says of retention."""
    disk, identity, losses = archiver.disk, archiver.identity, archiver.losses
    space = disk.pins.space()
    reached = archiver.archived_to or Offset(0)
    try:
        oldest_at, age = disk.age(reached)
        disk_to = disk.next_offset or reached
    except FileNotFoundError:  # let go meanwhile
        oldest_at, age, disk_to = None, None, reached
    left_s = None
    if age is not None and known is not None:
        left_s = retention_left_s(
            age, max_age_ms=known.max_age_ms, max_length_bytes=known.max_length_bytes, now=now_ms()
        )
    stream = identity.stream
    return StreamStatus(
        incarnation=identity.incarnation,
        vhost=None if stream is None else stream.vhost,
        name=None if stream is None else stream.name,
        state=archiver.state,
        disk_from=disk.segments[0].first_offset if disk.segments else disk_to,
        disk_to=disk_to,
        committed_to=min(identity.committed_to, disk_to),
        archived_to=archiver.archived_to,
        pinned_segments=space.segments,
        pinned_bytes=space.size_bytes,
        orphaned_bytes=space.orphaned_bytes,
        oldest_unarchived_at=oldest_at,
        retention_left_s=left_s,
        last_failure=archiver.last_failure,
        complete_from=losses.complete_from,
        incomplete_because=losses.why,
    )
