"""How far a micro-batch reaches if its records or bytes are limited."""

from __future__ import annotations

from dataclasses import replace

from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import plan_scan
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset
from coldstream_spark.positions import Positions


def limit_positions(
    table: ManifestReads, before: Positions, ends: Positions, *, records: int | None = None, size_bytes: int | None
) -> Positions:
    """Return positions, at most `ends`, between which lie about `records` offsets and `size_bytes` of chunks.

    The streams share the limits, the smallest backlog first: what it leaves over goes to the others. Another
    incarnation of a stream begins at its first offset, after the rest of the old one, which is not limited.
    """
    starts: dict[str, Offset] = {}
    for name, end in ends.items():
        position = before.get(name)
        if position is not None and position.stream == end.stream:
            starts[name] = position.offset
        else:
            starts[name] = _first(table, end.stream)
    waiting = sorted(
        (name for name in ends if starts[name] < ends[name].offset),
        key=lambda name: (ends[name].offset - starts[name], name),
    )
    reached = {name: replace(end, offset=max(starts[name], Offset(0))) for name, end in ends.items()}
    for number, name in enumerate(waiting):
        share = len(waiting) - number
        until = ends[name].offset
        if records is not None:
            # Rounded up: a limit below the number of streams would otherwise read nothing, batch after batch.
            until = min(until, Offset(starts[name] + -(-records // share)))
        if size_bytes is not None:
            until, taken = _reach(table, ends[name].stream, starts[name], until, -(-size_bytes // share))
            size_bytes = max(0, size_bytes - taken)
        if records is not None:
            records = max(0, records - (until - starts[name]))
        reached[name] = replace(ends[name], offset=until)
    return reached


def _first(table: ManifestReads, stream: StreamId) -> Offset:
    head = table.head(stream.incarnation)
    return Offset(0) if head is None or head.first_offset is None else head.first_offset


def _reach(table: ManifestReads, stream: StreamId, start: Offset, end: Offset, most_bytes: int) -> tuple[Offset, int]:
    """Return the offset, at most `end`, up to which lie about so many bytes of chunks, and how many bytes these are."""
    taken = 0
    if not most_bytes:
        return start, 0
    for step in plan_scan(table, stream, start, end, slice_bytes=1):  # the smallest steps there are
        if isinstance(step, Gap):
            continue
        if taken and taken + step.data_bytes > most_bytes:
            return step.start, taken
        taken += step.data_bytes
    return end, taken
