"""What storage and requests cost, in US dollars.

Those of AWS's list (https://aws.amazon.com/s3/pricing, https://aws.amazon.com/dynamodb/pricing), region us-east-1,
without discounts by volume. The list itself could not be read on 2026-11-23; compared on that day with who quotes it:

- storage, requests and restores of all classes but GLACIER_IR, monitoring of INTELLIGENT_TIERING: the golden files of
  infracost 0.10, which are made from AWS's price API
- GLACIER_IR, and reads by the GB: https://www.usage.ai/blogs/aws/storage-cost/glacier-deep-archive-pricing (June 2026)
  and https://c3x.dev/blog/s3-request-fees-explained
- restores of GLACIER: AWS's example, https://repost.aws/knowledge-center/s3-manage-data-retrieval, which has 0.05 for
  1,000 at the tier STANDARD where infracost has 0.03
- 40 KB more of archived objects: https://www.demo.wlid.nl/s3-storage-classes.html
- transfer to the internet, the first 10 TB of a month: https://outlet.beddinginn.com/?p=160872; 100 GB of it are free:
  https://www.stormit.cloud/blog/aws-data-transfer-pricing-how-to-reduce-costs/
- DynamoDB since 2024-11-01: https://airbyte.com/data-engineering-resources/dynamodb-pricing (July 2025)

Other regions, contracts and days have others: every sum is an estimate, and says so to whoever sees it. A gigabyte is
2^30 bytes there. None is the class STANDARD, and so is a class not listed. DELETEs are free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coldstream.store.object_values import RestoreTier

GB = 1 << 30


@dataclass(frozen=True, slots=True)
class ClassPrices:
    """Prices of a storage class: a GB each month, 1,000 writes (PUT, COPY, POST), 1,000 GETs, a GB read.

    `least_days` are paid for, even if the object goes earlier. `extra_bytes` are charged for each object, and
    `watched_1000` each month for 1,000 of them.
    """

    gb_month: float
    writes_1000: float
    gets_1000: float
    read_gb: float = 0.0
    least_days: int = 0
    extra_bytes: int = 0
    watched_1000: float = 0.0


STANDARD = ClassPrices(0.023, 0.005, 0.0004)
BY_CLASS: Mapping[str, ClassPrices] = {
    "STANDARD_IA": ClassPrices(0.0125, 0.01, 0.001, 0.01, 30),
    "ONEZONE_IA": ClassPrices(0.01, 0.01, 0.001, 0.01, 30),
    # Of the first tier; S3 moves an object that nobody reads to cheaper ones after 30 and 90 days.
    "INTELLIGENT_TIERING": ClassPrices(0.023, 0.005, 0.0004, watched_1000=0.0025),
    "GLACIER_IR": ClassPrices(0.004, 0.02, 0.01, 0.03, 90),
    "GLACIER": ClassPrices(0.0036, 0.03, 0.0004, 0.0, 90, 32 << 10),
    "DEEP_ARCHIVE": ClassPrices(0.00099, 0.05, 0.0004, 0.0, 180, 32 << 10),
}

ARCHIVE_INDEX_BYTES = 8 << 10
"""What S3 keeps in STANDARD of each object of an archived class."""

WRITE_UNIT_USD = 0.625 / 1_000_000
READ_UNIT_USD = 0.125 / 1_000_000
"""A unit of DynamoDB: a KB written, or 4 KB read consistently."""

TRANSFER_GB_USD = 0.09
"""A GB that leaves AWS for the internet. Within a region, from S3 to whatever runs there, it is free."""

_RESTORES: Mapping[tuple[str, RestoreTier], tuple[float, float]] = {
    ("GLACIER", RestoreTier.EXPEDITED): (10.0, 0.03),
    ("GLACIER", RestoreTier.STANDARD): (0.05, 0.01),
    ("GLACIER", RestoreTier.BULK): (0.0, 0.0),
    ("DEEP_ARCHIVE", RestoreTier.STANDARD): (0.10, 0.02),
    ("DEEP_ARCHIVE", RestoreTier.BULK): (0.025, 0.0025),
}
"""1,000 restores, and a GB restored, by class and tier."""


def prices_of(storage_class: str | None) -> ClassPrices:
    """Return the prices of a storage class."""
    return STANDARD if storage_class is None else BY_CLASS.get(storage_class, STANDARD)


def storage_usd(size_bytes: int, storage_class: str | None = None, objects: int = 1) -> float:
    """Return what objects of that size together cost each month."""
    prices = prices_of(storage_class)
    index_bytes = ARCHIVE_INDEX_BYTES * objects if prices.extra_bytes else 0
    charged_bytes = size_bytes + prices.extra_bytes * objects
    stored_usd = (charged_bytes * prices.gb_month + index_bytes * STANDARD.gb_month) / GB
    return stored_usd + objects * prices.watched_1000 / 1000


def puts_usd(puts: int, storage_class: str | None = None) -> float:
    """Return what PUTs, COPYs or POSTs into a storage class cost. A LIST costs as much as a PUT into STANDARD."""
    return puts * prices_of(storage_class).writes_1000 / 1000


def gets_usd(gets: int, read_bytes: int = 0, storage_class: str | None = None) -> float:
    """Return what GETs or HEADs of a storage class cost that read so many bytes."""
    prices = prices_of(storage_class)
    return gets * prices.gets_1000 / 1000 + read_bytes * prices.read_gb / GB


def transfer_usd(sent_bytes: int) -> float:
    """Return what bytes cost on their way to the internet."""
    return sent_bytes * TRANSFER_GB_USD / GB


def restores_usd(objects: int, size_bytes: int, storage_class: str, tier: RestoreTier, days: int) -> float:
    """Return what it costs to restore objects and to keep the copies, which are in STANDARD, for some days.

    A class that need not be restored costs nothing. DEEP_ARCHIVE has no tier EXPEDITED, and counts as STANDARD then.
    """
    standard = _RESTORES.get((storage_class, RestoreTier.STANDARD))
    if standard is None:
        return 0.0
    restore_1000, restored_gb = _RESTORES.get((storage_class, tier), standard)
    kept = storage_usd(size_bytes) * days / 30
    return objects * restore_1000 / 1000 + size_bytes * restored_gb / GB + kept
