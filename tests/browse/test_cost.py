"""What streams and reads cost: by the list prices of one place."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.browse.cost import (
    ReadCost,
    estimate_month,
    get_cost,
    query_cost,
    stream_cost,
)
from coldstream.manifest.entry import Head, StorageClass
from coldstream.manifest.policy import Policy
from coldstream.store.memory.table import MemoryTable
from coldstream.store.prices import GB, READ_UNIT_USD, storage_usd
from coldstream.units import Offset, TimestampMs
from tests.store.samples import ORDERS, commit, entry

DAY_MS = 24 * 3600 * 1000
HEAD = Head(
    ORDERS,
    first_offset=Offset(0),
    next_offset=Offset(100),
    first_timestamp=TimestampMs(0),
    greatest_timestamp=TimestampMs(100 * DAY_MS),
    fragments=100,
    object_bytes=100 * GB,
)
NOW = TimestampMs(100 * DAY_MS)


def policy(days: int, storage_class: StorageClass = StorageClass.GLACIER_IR, **fields: object) -> Policy:
    age_ms = days * DAY_MS
    return Policy("cold", "*/*", storage_class=storage_class, storage_class_age_ms=age_ms, **fields)  # type: ignore[arg-type]


def test_without_a_policy_all_is_in_standard() -> None:
    found = estimate_month(HEAD, NOW)
    assert found.usd == pytest.approx(2.3)
    assert not found.is_estimate
    assert estimate_month(HEAD, NOW, [Policy("keep", "*/*", max_age_ms=5)]) == found


@pytest.mark.parametrize(("days", "cold"), [(1000, 0), (100, 0), (75, 25), (30, 70), (0, 100)])
def test_what_is_older_than_the_policy_says_is_in_its_class(days: int, cold: int) -> None:
    found = estimate_month(HEAD, NOW, [policy(days)])
    assert found.usd == pytest.approx(storage_usd((100 - cold) * GB) + storage_usd(cold * GB, "GLACIER_IR"))
    assert found.is_estimate


def test_the_policy_that_counts_for_the_stream_is_taken() -> None:
    others = policy(0, StorageClass.DEEP_ARCHIVE, priority=5)
    assert estimate_month(HEAD, NOW, [replace(others, pattern="%2F/other")]) == estimate_month(HEAD, NOW)
    deep = estimate_month(HEAD, NOW, [policy(0), replace(others, name="deep")])
    assert deep.usd == pytest.approx(storage_usd(100 * GB, "DEEP_ARCHIVE", 100))


def test_an_empty_stream_costs_nothing() -> None:
    assert estimate_month(Head(ORDERS), NOW, [policy(1)]).usd == 0


def filled(*classes: StorageClass | None) -> MemoryTable:
    table = MemoryTable()
    for number, storage_class in enumerate(classes):
        commit(table, replace(entry(number * 10, number * 10 + 10), storage_class=storage_class, object_bytes=GB))
    return table


def test_the_cost_of_a_stream_is_added_up_by_class() -> None:
    table = filled(StorageClass.GLACIER, StorageClass.GLACIER, StorageClass.GLACIER_IR, None, None, None)
    found = stream_cost(table, ORDERS.incarnation)
    assert [(one.storage_class, one.fragments, one.stored_bytes) for one in found.shares] == [
        (StorageClass.GLACIER, 2, 2 * GB),
        (StorageClass.GLACIER_IR, 1, GB),
        (None, 3, 3 * GB),
    ]
    wanted = storage_usd(2 * GB, "GLACIER", 2) + storage_usd(GB, "GLACIER_IR") + storage_usd(3 * GB)
    assert found.usd == pytest.approx(wanted)
    assert (found.fragments_read, found.is_estimate) == (6, False)


def test_of_a_stream_that_is_too_long_the_rest_is_taken_to_be_like_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.browse.cost.PAGE_ENTRIES", 2)
    table = filled(StorageClass.GLACIER_IR, *[None] * 9)
    table.requests.clear()
    found = stream_cost(table, ORDERS.incarnation, max_pages=2)
    assert table.requests == {"Query": 2, "GetItem": 1}
    assert (found.fragments_read, found.is_estimate) == (4, True)
    assert found.usd == pytest.approx(stream_cost(table, ORDERS.incarnation).usd)
    assert sum(one.fragments for one in found.shares) == 10


def test_what_was_not_read_is_like_the_last_fragment_also_if_its_class_was_met_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.browse.cost.PAGE_ENTRIES", 2)
    table = filled(None, StorageClass.GLACIER_IR, None, None, *[None] * 6)
    found = stream_cost(table, ORDERS.incarnation, max_pages=2)
    assert found.usd == pytest.approx(stream_cost(table, ORDERS.incarnation).usd)


def test_a_page_that_ends_with_the_last_fragment_is_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.browse.cost.PAGE_ENTRIES", 2)
    assert not stream_cost(filled(None, None, None, None), ORDERS.incarnation, max_pages=2).is_estimate


def test_an_unknown_stream_costs_nothing() -> None:
    assert stream_cost(MemoryTable(), ORDERS.incarnation).usd == 0


@pytest.mark.parametrize(
    ("cost", "units"),
    [
        (query_cost(), 1),
        (query_cost(2), 2),
        (query_cost(entries=4), 1),
        (query_cost(entries=200), 50),
        (query_cost(others=17), 2),
        (query_cost(2, others=1), 2),
    ],
)
def test_queries_are_paid_by_the_four_kilobytes_and_at_least_a_unit_each(cost: ReadCost, units: int) -> None:
    assert (cost.units, cost.usd) == (units, pytest.approx(units * READ_UNIT_USD))


def test_gets_are_paid_by_their_class_and_transfer_comes_on_top() -> None:
    warm, cold = get_cost(1000, GB), get_cost(1000, GB, StorageClass.GLACIER_IR)
    assert warm.usd == pytest.approx(0.0004)
    assert cold.usd == pytest.approx(0.01 + 0.03)
    assert warm.transfer_usd == pytest.approx(0.09)


def test_costs_add_up() -> None:
    rng = random.Random(1)
    costs = [query_cost(rng.randrange(1, 5), entries=rng.randrange(100)) for _ in range(9)]
    costs += [get_cost(rng.randrange(5), rng.randrange(1 << 30)) for _ in range(9)]
    found = sum(costs, ReadCost())
    assert found.requests == sum(one.queries + one.gets for one in costs)
    assert found.usd == pytest.approx(sum(one.usd for one in costs))
    assert found.read_bytes == sum(one.read_bytes for one in costs)
