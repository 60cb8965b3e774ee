"""Random schedules of growth and halving keep every key in order; without any one of the rules, some do not.

`make prove` plays SCHEDULES of them. A failure names its seed, and shows what happened last.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import pytest

from coldstream.manifest import shard_changes
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_map import ShardMap
from coldstream.shards import halve, seal
from coldstream.shards.old_producers import OldProducers
from coldstream.units import MAX_OFFSET, Offset, TimestampMs
from tests.support.shard_simulation import OrderBrokenError, SimulatedShards

SCHEDULES = int(os.environ.get("COLDSTREAM_SHARD_SCHEDULES", "200"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))
SLICE = 1200
"""Schedules within which a missing rule has to show."""


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_schedule_loses_or_doubles_a_message_or_breaks_the_order_of_a_key() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
        SimulatedShards(seed).run()


def test_seed_1203_a_producer_that_came_in_the_burst_and_was_away_after_it() -> None:
    SimulatedShards(1203).run()


def fails_somewhere() -> None:
    with pytest.raises(OrderBrokenError):
        play(SLICE)


def play(schedules: int) -> None:
    for seed in range(schedules):
        SimulatedShards(seed).run()


def test_without_holding_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyOrder, "may_read", lambda *_: True)
    fails_somewhere()


def test_sealed_before_old_producers_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OldProducers, "not_gone", lambda _: ())
    monkeypatch.setattr(OldProducers, "unproven", lambda *_: ())
    fails_somewhere()


def test_a_client_that_connects_again_taken_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OldProducers.during

    def during(self: OldProducers, publishers: object, connections: object, at: TimestampMs) -> OldProducers:
        return replace(whole(self, publishers, connections, at), is_closed=True)  # type: ignore[arg-type]

    monkeypatch.setattr(OldProducers, "during", during)
    monkeypatch.setattr(OldProducers, "not_gone", lambda _: ())
    fails_somewhere()


def test_a_seal_that_is_one_message_low(monkeypatch: pytest.MonkeyPatch) -> None:
    def sealed(found: ShardMap, seals: Mapping[int, Offset]) -> ShardMap:
        lower = {number: Offset(max(0, end - 1)) for number, end in seals.items()}
        return shard_changes.sealed(found, lower)

    monkeypatch.setattr(seal, "sealed", sealed)
    fails_somewhere()


def test_halving_without_the_ends_of_the_kept_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(found: ShardMap, ends: Mapping[int, Offset], definition: str, at: TimestampMs) -> ShardMap:
        return shard_changes.halved(found, dict.fromkeys(ends, Offset(MAX_OFFSET)), definition, at)

    monkeypatch.setattr(halve, "halved", halved)
    fails_somewhere()


def test_halving_before_readers_know_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halve, "MAP_SETTLE_S", 0.0)
    fails_somewhere()
