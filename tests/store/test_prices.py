from __future__ import annotations

import pytest

from coldstream.manifest.entry import StorageClass
from coldstream.store import prices
from coldstream.store.ports import RestoreTier

TB = 1 << 40


def test_a_terabyte_a_month_has_the_price_of_its_class() -> None:
    assert prices.storage_usd(TB) == pytest.approx(23.552)
    assert prices.storage_usd(TB, StorageClass.GLACIER_IR) == pytest.approx(4.096)
    assert prices.storage_usd(TB, "SNOW") == prices.storage_usd(TB)


def test_an_archived_object_is_charged_for_its_index() -> None:
    small = prices.storage_usd(0, StorageClass.DEEP_ARCHIVE, objects=1 << 20)
    assert small == pytest.approx(32 * 0.00099 + 8 * 0.023)
    assert prices.storage_usd(0, StorageClass.STANDARD_IA, objects=1 << 20) == 0


def test_a_watched_object_is_charged_for_being_watched() -> None:
    assert prices.storage_usd(0, StorageClass.INTELLIGENT_TIERING, objects=20_000) == pytest.approx(0.05)


def test_every_class_has_prices_and_those_of_requests_are_by_the_thousand() -> None:
    assert set(prices.BY_CLASS) == set(StorageClass)
    assert prices.puts_usd(1000) == pytest.approx(0.005)
    assert prices.puts_usd(1000, StorageClass.DEEP_ARCHIVE) == pytest.approx(0.05)
    assert prices.gets_usd(1000) == pytest.approx(0.0004)
    assert prices.gets_usd(0, prices.GB, StorageClass.GLACIER_IR) == pytest.approx(0.03)


def test_a_restore_costs_requests_bytes_and_the_copies() -> None:
    # AWS's own example: 15 million objects of 100 TB at the tier Standard.
    usd = prices.restores_usd(15_000_000, 100 * TB, "GLACIER", RestoreTier.STANDARD, days=0)
    assert usd == pytest.approx(750 + 1024)
    kept = prices.restores_usd(0, TB, "DEEP_ARCHIVE", RestoreTier.BULK, days=30)
    assert kept == pytest.approx(1024 * 0.0025 + 23.552)
    assert prices.restores_usd(1, TB, "STANDARD_IA", RestoreTier.BULK, days=30) == 0
    expedited, standard = (
        prices.restores_usd(9, TB, "DEEP_ARCHIVE", tier, days=1)
        for tier in (RestoreTier.EXPEDITED, RestoreTier.STANDARD)
    )
    assert expedited == standard


def test_what_leaves_for_the_internet_is_paid_by_the_gigabyte() -> None:
    assert prices.transfer_usd(10 * prices.GB) == pytest.approx(0.9)
    assert prices.transfer_usd(0) == 0
