"""When the broker will delete what is not archived yet."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """What retention looks at in the oldest segment that is not archived, and in the stream behind it.

    The segment's last chunk was written at `last_at`; the stream has `bytes_behind` bytes after the segment, and they
    were written from `last_at` to `newest_at`.
    """

    last_at: TimestampMs
    newest_at: TimestampMs
    bytes_behind: int


def retention_left_s(
    age: SegmentAge, *, max_age_ms: int | None, max_length_bytes: int | None, now: TimestampMs
) -> float | None:
    """Return how long the broker will still have the segment, in seconds, 0 at the least; None where that is unknown.

    By age it goes once its last chunk is older than `max_age_ms`; by length once the segments behind it hold
    `max_length_bytes`, which is reckoned from the rate at which they were written (osiris_retention:eval/2).
    """
    left: list[float] = []
    if max_age_ms is not None:
        left.append((age.last_at + max_age_ms - now) / 1000)
    if max_length_bytes is not None:
        missing_bytes = max_length_bytes - age.bytes_behind
        if missing_bytes <= 0:
            left.append(0.0)
        elif age.bytes_behind > 0:
            span_s = max(age.newest_at - age.last_at, 1) / 1000
            left.append(missing_bytes / (age.bytes_behind / span_s))
    return max(0.0, min(left)) if left else None
