"""What the manifest says of each stream's troubles: unfinished work, quarantines, and gaps that nobody explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from coldstream.manifest.appender import Opening, WalKind
from coldstream.manifest.entry import ErasureState, Head
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import iter_streams
from coldstream.units import Offset, TimestampMs, format_timestamp

MAX_STREAMS = 10_000
MAX_NAMED = 20
"""Streams that one diagnosis of a kind names."""

PAGE_GAPS = 200

OVERDUE_MS = 2 * 24 * 3600 * 1000
"""How long after its due time an object may still be there: sweeps run daily."""


@dataclass(frozen=True, slots=True)
class StreamTrouble:
    """A trouble of a stream: what it is, and the command for it."""

    stream: StreamId
    kind: str
    found: str
    todo: str


def stream_troubles(table: ManifestReads, now: TimestampMs) -> Iterator[StreamTrouble]:
    """Yield the troubles of all streams, of the first MAX_STREAMS at most.

    Cost: a Query every 500 streams; for each a GetItem and a Query, and a Query a page of gaps if it has any.
    """
    for number, stream in enumerate(iter_streams(table)):
        if number == MAX_STREAMS:
            return
        head = table.head(stream.incarnation)
        if head is not None:
            yield from head_troubles(head, now)
            yield from item_troubles(table, head, now)


def head_troubles(head: Head, now: TimestampMs) -> Iterator[StreamTrouble]:
    """Yield the troubles that a stream's head tells. Cost: no request."""
    stream = head.stream
    name = command_arguments(stream)
    if head.compacting is not None:
        found = f"a compaction up to offset {head.compacting} is unfinished"
        yield StreamTrouble(stream, "unfinished compaction", found, f"coldstream compact {name}")
    lost_with_it = next((one for one in _unrecovered(head) if one.wal.kind is not WalKind.S3), None)
    if lost_with_it is not None:
        found = f"epoch {lost_with_it.epoch} was not closed, and its log is elsewhere: {lost_with_it.wal}"
        yield StreamTrouble(stream, "unrecovered batches", found, "open the stream in the process that has this log")
    if head.quarantined:
        found = f"{head.quarantined} segments are in quarantine"
        yield StreamTrouble(stream, "quarantine", found, f"coldstream quarantine list {name}")
    if head.is_deleted and head.purged_at is None and head.purge_at is not None and head.purge_at + OVERDUE_MS <= now:
        found = f"deleted, and to be purged since {format_timestamp(head.purge_at)}"
        yield StreamTrouble(stream, "overdue purge", found, "check that the retention function runs")


def _unrecovered(head: Head) -> tuple[Opening, ...]:
    """Return the openings whose batches the last one has not recovered yet."""
    return () if head.appender is None or head.is_deleted else head.appender.openings[:-1]


def item_troubles(table: ManifestReads, head: Head, now: TimestampMs) -> Iterator[StreamTrouble]:
    """Yield the troubles that a stream's items tell. Cost: a Query; if it has gaps or erasures, one more for each."""
    stream = head.stream
    overdue = table.tombstones(stream.incarnation, TimestampMs(now - OVERDUE_MS), 1)
    if overdue:
        found = f"an object was due to be deleted {format_timestamp(overdue[0].due_at)}"
        yield StreamTrouble(stream, "overdue sweep", found, "coldstream sweep")
    if head.erasures:
        running = [one for one in table.erasures(stream.incarnation) if one.state is ErasureState.RUNNING]
        if running:
            found = f"{len(running)} erasures are unfinished, the first is {running[0].id}"
            yield StreamTrouble(
                stream, "unfinished erasure", found, f"coldstream erase {command_arguments(stream)} --resume"
            )
    if head.gaps and (unexplained := _unexplained(table, stream)):
        found = f"{unexplained} gaps without a reason: not archived yet, or lost"
        yield StreamTrouble(stream, "unexplained gaps", found, f"coldstream describe {command_arguments(stream)}")


def command_arguments(stream: StreamId) -> str:
    """Return the arguments that name a stream to a command, as a shell takes them."""
    return quote(stream.name) + ("" if stream.vhost == "/" else f" --vhost {quote(stream.vhost)}")


def _unexplained(table: ManifestReads, stream: StreamId) -> int:
    count, at = 0, Offset(0)
    while gaps := table.gaps(stream.incarnation, PAGE_GAPS, from_offset=at):
        count += sum(gap.reason is None for gap in gaps)
        at = Offset(gaps[-1].first_offset + 1)
    return count
