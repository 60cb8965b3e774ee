"""`SegmentLost`: the announcement that offsets of a stream will never be archived, and why."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidEventError
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import StreamId
from coldstream.units import MAX_OFFSET, Offset

MAX_REASON_BYTES = 1000


@dataclass(frozen=True, slots=True)
class SegmentLost:
    """Offsets `first_offset` up to `next_offset`, given up before they were archived, as `cluster` announced it.

    `unseen` says that they were deleted before an agent came to the stream, so that no agent could have archived them.
    """

    stream: StreamId
    first_offset: Offset
    next_offset: Offset
    reason: str
    cluster: Cluster = NO_CLUSTER
    unseen: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset < self.next_offset <= MAX_OFFSET:
            raise InvalidEventError(
                "lost", f"needs 0 <= first_offset < next_offset, got {self.first_offset} and {self.next_offset}"
            )
        try:
            size_bytes = len(self.reason.encode())
        except UnicodeEncodeError as err:
            raise InvalidEventError("reason", f"{self.reason!r} cannot be encoded in UTF-8") from err
        if not 1 <= size_bytes <= MAX_REASON_BYTES:
            raise InvalidEventError("reason", f"is {size_bytes} bytes long, and must be 1 to {MAX_REASON_BYTES}")

    def __str__(self) -> str:
        return f"loss of offsets {self.first_offset} to {self.next_offset - 1} of {self.stream}"
