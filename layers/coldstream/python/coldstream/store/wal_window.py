"""How far a writer and its sealers may be ahead of the first hole of a write-ahead log, and what a listing tells then.

The *end* of a WAL is the first sequence that its writer did not take. Who looks for it may look late, or at a listing
whose pages are of different moments, and meets sequences that are gone because they were trimmed, and objects that
came late: a PUT whose answer was lost may arrive after its object was trimmed. None of these may be taken for the end,
or for a hole. So three bounds hold:

- A writer has at most MAX_IN_FLIGHT objects from the first that is not acknowledged on.
- A sealer creates seals only within REACH of the first hole that it saw, which the writer can only have moved up.
- A writer never trims the newest KEPT of the objects it knows to be durable.

By the first two, the end is within REACH of the greatest sequence that is there. By the third, what is at or before
the end there was not trimmed, and what came late is farther below. So only the last REACH sequences of a listing count.
A seal that a stalled sealer put where something was trimmed lies below those, and does not count either: that is why a
sealer looks again after it has created one.

Once a WAL is sealed, its seal stays for ever, and so do the REACH objects before it, at least without their batches
(`garbage.write_ahead_logs`). A writer that wakes up after years finds its last PUTs there, and learns which of them
count: it has acknowledged what lies below those, and whoever looks for the end finds the same one.
"""

from __future__ import annotations

from collections.abc import Collection

MAX_IN_FLIGHT = 16
REACH = 2 * MAX_IN_FLIGHT
KEPT = 2 * REACH


def what_counts(there: Collection[int]) -> range:
    """Return the last sequences of a listing: what lies below may have holes, and seals that are worth nothing."""
    greatest = max(there, default=-1)
    return range(max(0, greatest - REACH + 1), greatest + 1)


def kept_at_the_end(end: int) -> range:
    """Return the sequences of a WAL sealed at `end` that stay taken for ever, its seal among them."""
    return range(max(0, end - REACH), end + 1)
