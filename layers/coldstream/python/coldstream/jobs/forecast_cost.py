"""What the work on a part of a stream costs: requests, bytes that are read, and dollars. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.jobs.specs import CompactSpec, EraseSpec, JobSpec, RetentionSpec, ScrubSpec
from coldstream.store.prices import READ_UNIT_USD, WRITE_UNIT_USD, gets_usd, puts_usd
from coldstream.units import MIB, parse_size

RANGE_BYTES = 8 * MIB
"""What one GET reads of a large fragment."""

ENTRIES_IN_A_QUERY = 1000
UNITS_OF_A_QUERY = 256
"""A page of a megabyte, in units of 4 KB."""

PART_BYTES = 8 * MIB
"""A part of a new object."""

FOOTER_BYTES = 16 << 10
"""About what the index and the trailer of a fragment have, which a scrub reads of each."""

UNITS_OF_A_CHANGE = 8
"""About what a change of the manifest writes: a few items in a transaction, each at twice the price."""


@dataclass(frozen=True, slots=True)
class ReadWork:
    """Bytes that are read from the bucket, requests to table and bucket, and what they cost."""

    read_bytes: int
    requests: int
    usd: float


def work_of(spec: JobSpec, object_bytes: int, fragments: int, storage_class: str | None) -> ReadWork:
    """Return the work of a job on fragments of so many bytes together."""
    queries = 1 + fragments // ENTRIES_IN_A_QUERY
    listed_usd = min(queries * UNITS_OF_A_QUERY, queries + fragments) * READ_UNIT_USD
    match spec:
        case RetentionSpec():
            changes = -(-fragments // 50)
            usd = listed_usd + changes * UNITS_OF_A_CHANGE * WRITE_UNIT_USD
            return ReadWork(0, queries + 2 * changes, usd)
        case ScrubSpec(deep=False):
            read_bytes = min(object_bytes, FOOTER_BYTES * fragments)
            # A HEAD, and a GET of the footer.
            return ReadWork(read_bytes, queries + 2 * fragments, listed_usd + gets_usd(2 * fragments))
        case _:
            gets = max(fragments, -(-object_bytes // RANGE_BYTES))
            usd = listed_usd + gets_usd(gets, object_bytes, storage_class)
            puts, changes = _writes(spec, object_bytes, fragments)
            usd += puts_usd(puts) + changes * UNITS_OF_A_CHANGE * WRITE_UNIT_USD
            return ReadWork(object_bytes, queries + gets + puts + changes, usd)


def _writes(spec: JobSpec, object_bytes: int, fragments: int) -> tuple[int, int]:
    """Return the PUTs of new objects, and the changes of the manifest, if all of it is written again."""
    if isinstance(spec, CompactSpec):
        groups = min(fragments, -(-object_bytes // parse_size(spec.target_size)))
        return groups + object_bytes // PART_BYTES, groups
    if isinstance(spec, EraseSpec):
        return fragments + object_bytes // PART_BYTES, fragments
    return 0, 0
