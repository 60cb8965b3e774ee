"""The archive's items, units, requests and dollars for a load: the formulae of docs/scale.md.

Pure. What a fragment and a segment take was counted: `bench.scale` counts it again, at many sizes, and a test holds the
page against this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from coldstream.archive.staged_segment import RANGE_BYTES
from coldstream.ingest.multipart import PART_BYTES
from coldstream.store.prices import GB, WRITE_UNIT_USD, gets_usd, puts_usd, storage_usd

MONTH_S = 30 * 86_400
KB = 1024

HEAD_BYTES = 500
EVENT_BYTES = 1100
ENTRY_BYTES = 1200
"""The items that a fragment of 64 MiB writes, in bytes: less than a KB, more than one, more than one."""

PROCESSOR_BYTES_S = 500e6 / 5
"""What an upload function of 1 GB archives by its processor: a segment of 500 MB in 5 s, as docs/deploy.md reckons."""

NETWORK_BYTES_S = 75e6
"""What a function gets from the network, both ways together. An assumption: AWS promises none."""

LEAST_UPLOAD_S = 0.3
"""Of an upload, however small."""

EVENT_USD = 1.00 / 1e6
QUEUE_USD = 3 * 0.40 / 1e6
"""An event, and a message that is sent, received and deleted."""

CALL_USD = 0.20 / 1e6
GB_S_USD = 0.0000166667
TABLE_GB_USD = 0.25


def write_units(head_bytes: int, event_bytes: int, entry_bytes: int) -> int:
    """Return the write units of a transaction with head, event and entry.

    A transaction takes two for each begun KB of an item. Head and entry are in the index by time, too, which takes one.
    """
    head, event, entry = (-(-size // KB) for size in (head_bytes, event_bytes, entry_bytes))
    return 3 * head + 2 * event + 3 * entry


FRAGMENT_UNITS = write_units(HEAD_BYTES, EVENT_BYTES, ENTRY_BYTES)
SMALL_FRAGMENT_UNITS = write_units(HEAD_BYTES, KB, KB)
"""Of a fragment so small that no item has more than a KB: a span of a quiet stream."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is archived: `span_s` is that of a max-lag, if every stream has data in each; None means whole segments."""

    streams: int
    bytes_s: float
    stored_bytes: float
    segment_bytes: float = 500e6
    fragment_bytes: float = 64 << 20
    span_s: float | None = None

    @property
    def segments_s(self) -> float:
        """Announcements a second: rolls, or spans."""
        rolls = self.bytes_s / self.segment_bytes
        return rolls if self.span_s is None else max(rolls, self.streams / self.span_s)

    @property
    def fragments_s(self) -> float:
        """Fragments a second."""
        return max(self.segments_s, self.bytes_s / self.fragment_bytes)

    @property
    def stored_fragments(self) -> float:
        """Fragments in the archive, of their full size: compaction has merged smaller ones."""
        return self.stored_bytes / self.fragment_bytes

    @property
    def write_units_s(self) -> float:
        """Write units a second, of table and index."""
        return self.fragments_s * (FRAGMENT_UNITS if self.span_s is None else SMALL_FRAGMENT_UNITS)

    @property
    def items(self) -> float:
        """Items: an entry and an event a fragment, a head and a registration a stream."""
        return 2 * self.stored_fragments + 2 * self.streams

    @property
    def table_bytes(self) -> float:
        """Bytes of table and index: the index has every entry and head once more."""
        return self.stored_fragments * (2 * ENTRY_BYTES + EVENT_BYTES) + self.streams * (2 * HEAD_BYTES + 200)

    @property
    def segment_size(self) -> float:
        """Bytes of what is announced at once, on average."""
        return self.bytes_s / self.segments_s

    @property
    def puts_s(self) -> float:
        """Requests of the price of a PUT a second: parts, three for each segment of several, and fragments."""
        parts = ceil(self.segment_size / PART_BYTES)
        return self.segments_s * (1 if parts <= 1 else parts + 3) + self.fragments_s

    @property
    def gets_s(self) -> float:
        """Requests of the price of a GET a second: the agent's HEADs before and after, and the function's reads."""
        return self.segments_s * (2 + ceil(self.segment_size / RANGE_BYTES))

    @property
    def upload_s(self) -> float:
        """Seconds of an upload function: what its network takes, both ways, as that is longer than its processor's."""
        by_network, by_processor = 2 * self.segment_size / NETWORK_BYTES_S, self.segment_size / PROCESSOR_BYTES_S
        return max(LEAST_UPLOAD_S, by_network, by_processor)

    @property
    def calls_at_once(self) -> float:
        """Upload functions at work."""
        return self.segments_s * self.upload_s

    @property
    def dollars(self) -> dict[str, float]:
        """The cost of a month by what is paid for, at list prices of us-east-1, without discounts by volume."""
        return {
            "S3, storage": storage_usd(int(self.stored_bytes)),
            "S3, requests": MONTH_S * (puts_usd(1) * self.puts_s + gets_usd(1) * self.gets_s),
            "DynamoDB, write units": MONTH_S * self.write_units_s * WRITE_UNIT_USD,
            "DynamoDB, storage": self.table_bytes / GB * TABLE_GB_USD,
            "EventBridge and SQS": MONTH_S * self.segments_s * (EVENT_USD + QUEUE_USD),
            "Lambda": MONTH_S * self.segments_s * (self.upload_s * GB_S_USD + CALL_USD),
        }


MOST_FRAGMENTS_S = 1000 / FRAGMENT_UNITS
"""Of one stream: a partition of the table takes 1,000 write units a second."""
