"""What streams and reads cost, in US dollars, by the list prices of `store.prices`: estimates, and told as such.

A head counts the bytes of all objects, not of each storage class. Only retention moves objects to colder classes, the
oldest first, those older than its policy's age. So a month's cost follows from the head and the policy if the stream
came in evenly. `stream_cost` adds up the entries instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coldstream.manifest.entry import FragmentEntry, Head, StorageClass
from coldstream.manifest.policy import Policy, match
from coldstream.manifest.stream import Incarnation
from coldstream.store.log import PAGE_ENTRIES, iter_pages
from coldstream.store.ports import ManifestReads
from coldstream.store.prices import READ_UNIT_USD, gets_usd, storage_usd, transfer_usd
from coldstream.units import KIB, Offset, TimestampMs

ENTRY_BYTES = KIB
"""About what an entry's item has; the figure of `docs/design.md`."""

OTHER_BYTES = KIB // 4
"""About what the item of a gap, a loss or a hold has, with its reason."""

UNIT_BYTES = 4 * KIB
"""What one unit reads consistently; the units of a request are rounded up."""

MAX_COST_PAGES = 50
"""Pages of entries that one exact sum reads; what is past them is taken to be like what was read."""


@dataclass(frozen=True, slots=True)
class MonthlyCost:
    """What storage costs each month; `is_estimate` if the shares of the storage classes were estimated."""

    usd: float
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class ClassShare:
    """What of a stream is in one storage class, None for STANDARD, and what that costs each month."""

    storage_class: StorageClass | None
    fragments: int
    stored_bytes: int
    usd: float


@dataclass(frozen=True, slots=True)
class StreamCost:
    """A stream's storage by class, warmest first as they were met, and the cost of each month.

    `is_estimate` says that only the first `fragments_read` fragments were read, and the rest was taken to be like them.
    """

    shares: tuple[ClassShare, ...]
    usd: float
    fragments_read: int
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Requests and bytes of reading, and what they cost.

    `units` are those of DynamoDB. `transfer_usd` comes on top of `usd` if the bytes leave AWS's region.
    """

    queries: int = 0
    gets: int = 0
    units: int = 0
    read_bytes: int = 0
    usd: float = 0.0

    @property
    def requests(self) -> int:
        """Requests to both services."""
        return self.queries + self.gets

    @property
    def transfer_usd(self) -> float:
        """What the bytes cost on their way to the internet, without the part that is free."""
        return transfer_usd(self.read_bytes)

    def __add__(self, other: ReadCost) -> ReadCost:
        return ReadCost(
            self.queries + other.queries,
            self.gets + other.gets,
            self.units + other.units,
            self.read_bytes + other.read_bytes,
            self.usd + other.usd,
        )


def estimate_month(head: Head, now: TimestampMs, policies: Sequence[Policy] = ()) -> MonthlyCost:
    """Return what a stream's storage costs each month, by its head and the policy that counts for it. No request."""
    policy = match(policies, head.stream) if policies else None
    all_warm = storage_usd(head.object_bytes, None, head.fragments)
    if policy is None or policy.storage_class is None or not head.object_bytes:
        return MonthlyCost(all_warm)
    share = _share_before(head, TimestampMs(now - (policy.storage_class_age_ms or 0)))
    cold_bytes, cold_objects = round(head.object_bytes * share), round(head.fragments * share)
    warm = storage_usd(head.object_bytes - cold_bytes, None, head.fragments - cold_objects)
    return MonthlyCost(warm + storage_usd(cold_bytes, policy.storage_class, cold_objects), is_estimate=True)


def stream_cost(table: ManifestReads, incarnation: Incarnation, max_pages: int = MAX_COST_PAGES) -> StreamCost:
    """Add up a stream's objects by storage class. Cost: a Query for every 1,000 fragments, `max_pages` at most."""
    shares: dict[StorageClass | None, ClassShare] = {}
    read, head = 0, None
    last: StorageClass | None = None
    for number, page in enumerate(iter_pages(table, incarnation, Offset(0), PAGE_ENTRIES), start=1):
        for entry in page.entries:
            last = entry.storage_class
            before = shares.get(last, ClassShare(last, 0, 0, 0.0))
            shares[entry.storage_class] = replace(
                before,
                fragments=before.fragments + 1,
                stored_bytes=before.stored_bytes + entry.object_bytes,
                usd=before.usd + storage_usd(entry.object_bytes, entry.storage_class),
            )
        read += len(page.entries)
        head = page.head
        if number == max_pages:
            break
    if head is None and read:
        head = table.head(incarnation)
        if head is not None and head.fragments > read:
            return _like_those_read(shares, last, read, head)
    found = tuple(shares.values())
    return StreamCost(found, sum(share.usd for share in found), read)


def query_cost(queries: int = 1, *, entries: int = 0, others: int = 0) -> ReadCost:
    """Return what Queries cost that read so many entries and other items together. A GetItem counts as a Query."""
    units = max(queries, -(-(entries * ENTRY_BYTES + others * OTHER_BYTES) // UNIT_BYTES))
    return ReadCost(queries=queries, units=units, usd=units * READ_UNIT_USD)


def get_cost(gets: int, read_bytes: int, storage_class: StorageClass | None = None) -> ReadCost:
    """Return what GETs of objects in a storage class cost."""
    return ReadCost(gets=gets, read_bytes=read_bytes, usd=gets_usd(gets, read_bytes, storage_class))


def stored_usd(entry: FragmentEntry) -> float:
    """Return what a fragment's object costs each month."""
    return storage_usd(entry.object_bytes, entry.storage_class)


def _share_before(head: Head, moment: TimestampMs) -> float:
    """Return which share of a stream came before a moment, if it came in evenly."""
    first, last = head.first_timestamp, head.greatest_timestamp
    if first is None or last is None or moment <= first:
        return 0.0
    return 1.0 if moment > last else (moment - first) / max(1, last - first)


def _like_those_read(
    shares: dict[StorageClass | None, ClassShare], warmest: StorageClass | None, read: int, head: Head
) -> StreamCost:
    """Add what was not read, as if it was in the class of the last fragment that was: classes only become warmer."""
    before = shares[warmest]
    known_bytes = sum(share.stored_bytes for share in shares.values())
    rest_bytes, rest = max(0, head.object_bytes - known_bytes), head.fragments - read
    shares[warmest] = replace(
        before,
        fragments=before.fragments + rest,
        stored_bytes=before.stored_bytes + rest_bytes,
        usd=before.usd + storage_usd(rest_bytes, warmest, rest),
    )
    found = tuple(shares.values())
    return StreamCost(found, sum(share.usd for share in found), read, is_estimate=True)
