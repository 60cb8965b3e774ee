"""A stream of this node at one moment, as the agent shows it."""

from __future__ import annotations

from coldstream.agent.disk.retention import UnarchivedAge, retention_left_s
from coldstream.agent.disk.slices import unarchived_age
from coldstream.agent.disk.stream_disk import StreamDisk
from coldstream.agent.losses import Losses
from coldstream.agent.monitor.status import StreamStatus
from coldstream.agent.proof.management import BrokerStream
from coldstream.agent.stream_progress import ArchivingProgress
from coldstream.units import now_ms


def snapshot(
    disk: StreamDisk,
    progress: ArchivingProgress,
    losses: Losses,
    known: BrokerStream | None,
    *,
    last_failure: str | None,
) -> StreamStatus:
    """Look at the disk, and put together what to show; `known` is what the broker says of the stream's retention."""
    identity, log = progress.identity, disk.log
    space = disk.pins.space()
    # Read once: this runs in a thread, and the event loop moves it meanwhile.
    reached = progress.archived_to
    try:
        age = unarchived_age(log, reached)
        disk_to = log.next_offset() or reached
    except FileNotFoundError:  # released meanwhile
        age, disk_to = UnarchivedAge(), reached
    left_s = None
    if age.segment is not None and known is not None:
        left_s = retention_left_s(
            age.segment, max_age_ms=known.max_age_ms, max_length_bytes=known.max_length_bytes, now=now_ms()
        )
    stream = identity.stream
    return StreamStatus(
        incarnation=identity.incarnation,
        vhost=None if stream is None else stream.vhost,
        name=None if stream is None else stream.name,
        state=progress.state.value,
        disk_from=log.segments[0].first_offset if log.segments else disk_to,
        disk_to=disk_to,
        committed_to=min(identity.committed_to, disk_to),
        archived_to=reached if progress.has_begun else None,
        pinned_segments=space.segments,
        pinned_bytes=space.size_bytes,
        orphaned_bytes=space.orphaned_bytes,
        oldest_unarchived_at=age.written_at,
        retention_left_s=left_s,
        last_failure=last_failure,
        complete_from=losses.complete_from,
        incomplete_because=losses.why,
    )
