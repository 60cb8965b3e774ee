"""When the broker will delete the oldest segment that is not archived yet."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """What retention looks at in a segment, and in the stream after it.

    The last chunk of the segment was written at `last_at`. After the segment the stream has `bytes_after` bytes, which
    were written from `last_at` to `newest_at`.
    """

    last_at: TimestampMs
    newest_at: TimestampMs
    bytes_after: int


@dataclass(frozen=True, slots=True)
class UnarchivedAge:
    """When the oldest chunk that is not archived was written, and the age of its segment.

    `written_at` is None if everything is archived; `segment` is None then, and for the segment that is written to.
    """

    written_at: TimestampMs | None = None
    segment: SegmentAge | None = None


def retention_left_s(
    age: SegmentAge, *, max_age_ms: int | None, max_length_bytes: int | None, now: TimestampMs
) -> float | None:
    """Return for how many seconds the broker will still have the segment, at least 0; None if that is unknown.

    By age, the segment goes when its last chunk is older than `max_age_ms`. By length, it goes when the segments after
    it hold `max_length_bytes`: this is estimated from the rate at which they were written (osiris_retention:eval/2).
    """
    left_s: list[float] = []
    if max_age_ms is not None:
        left_s.append((age.last_at + max_age_ms - now) / 1000)
    if max_length_bytes is not None:
        missing_bytes = max_length_bytes - age.bytes_after
        if missing_bytes <= 0:
            left_s.append(0.0)
        elif age.bytes_after > 0:
            span_s = max(age.newest_at - age.last_at, 1) / 1000
            left_s.append(missing_bytes / (age.bytes_after / span_s))
    return max(0.0, min(left_s)) if left_s else None
