"""Expiry: the fragments at the beginning of a log that a policy lets go.

Pure. Only whole fragments expire, the oldest first, and never one before which another stays: the log keeps no holes.

- A fragment is as old as its newest chunk. Chunks have the time of the broker that wrote them.
- A maximum size holds for the objects of the log, as they are stored and paid for.
- What is the least to keep always stays, whatever else the policy says.
- The last fragment of a direct stream stays if it ends with what its publishers appended last: without it, what they
  send again would be appended twice. So a broker never removes the segment that it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.policy import Policy
from coldstream.units import TimestampMs


def expired(policy: Policy, head: Head, log: Iterable[FragmentEntry], now: TimestampMs) -> Iterator[FragmentEntry]:
    """Yield the first entries of `log` that expire at `now`. `log` is taken no further than the first that stays.

    `head` has the totals of the whole log, of which `log` is the beginning.
    """
    object_bytes, messages = head.object_bytes, head.messages
    for entry in log:
        is_too_old = policy.max_age_ms is not None and entry.greatest_timestamp < now - policy.max_age_ms
        is_too_much = policy.max_bytes is not None and object_bytes > policy.max_bytes
        object_bytes -= entry.object_bytes
        messages -= entry.messages
        if not (is_too_old or is_too_much) or not _leaves_enough(policy, entry, object_bytes, messages, now):
            return
        yield entry


def _leaves_enough(policy: Policy, entry: FragmentEntry, object_bytes: int, messages: int, now: TimestampMs) -> bool:
    """Tell whether the least to keep is still there when `entry` has gone, which leaves so many bytes and messages."""
    if policy.least_bytes is not None and object_bytes < policy.least_bytes:
        return False
    if policy.least_messages is not None and messages < policy.least_messages:
        return False
    return policy.least_age_ms is None or entry.greatest_timestamp < now - policy.least_age_ms


def tells_publishers(head: Head, entry: FragmentEntry) -> bool:
    """Tell whether an entry is the last of a direct stream, and has what its publishers appended last."""
    return head.appender is not None and entry.next_offset == head.next_offset and entry.messages < entry.records


def removable(head: Head, log: Iterable[FragmentEntry]) -> Iterator[FragmentEntry]:
    """Yield the entries of `log` up to the one that tells the publishers."""
    for entry in log:
        if tells_publishers(head, entry):
            return
        yield entry


def ended_before(log: Iterable[FragmentEntry], time: TimestampMs) -> Iterator[FragmentEntry]:
    """Yield the first entries of `log` all of whose chunks are older than `time`."""
    for entry in log:
        if entry.greatest_timestamp >= time:
            return
        yield entry


def ended_by(log: Iterable[FragmentEntry], offset: int) -> Iterator[FragmentEntry]:
    """Yield the first entries of `log` all of whose offsets lie below `offset`."""
    for entry in log:
        if entry.next_offset > offset:
            return
        yield entry
