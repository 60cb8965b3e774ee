"""Random schedules in the fast world: nothing lost, nothing committed twice, each key in order; and not without a rule.

`make prove` plays a million. A failure names its seed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

import pytest

from coldstream.manifest import shard_changes
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_map import ShardMap
from coldstream.shards.broker_port import StreamPublisher
from coldstream.shards.old_producers import OldProducers
from coldstream.units import MAX_OFFSET, Offset, TimestampMs
from tests.support import fast_shard_simulation
from tests.support.fast_shard_simulation import FastShards, ScheduleError

SCHEDULES = int(os.environ.get("COLDSTREAM_FAST_SCHEDULES", "20000"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))
SLICE = 20_000
"""Schedules within which a missing rule has to show."""


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_schedule_loses_or_doubles_a_message_or_breaks_the_order_of_a_key() -> None:
    play(FIRST_SEED, SCHEDULES)


def play(first: int, schedules: int) -> None:
    for seed in range(first, first + schedules):
        FastShards(seed).run()


def fails_somewhere() -> None:
    with pytest.raises(ScheduleError):
        play(0, SLICE)


def test_without_holding_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyOrder, "may_read", lambda *_: True)
    fails_somewhere()


def test_a_seal_that_is_one_message_low(monkeypatch: pytest.MonkeyPatch) -> None:
    def sealed(found: ShardMap, seals: Mapping[int, Offset]) -> ShardMap:
        return shard_changes.sealed(found, {number: Offset(max(0, end - 1)) for number, end in seals.items()})

    monkeypatch.setattr(fast_shard_simulation, "sealed", sealed)
    fails_somewhere()


def test_sealed_before_old_producers_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OldProducers, "not_gone", lambda _: ())
    monkeypatch.setattr(OldProducers, "unproven", lambda *_: ())
    fails_somewhere()


def test_a_client_that_connects_again_taken_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OldProducers.unproven

    def unproven(
        self: OldProducers, publishers: Iterable[StreamPublisher], added: Collection[str], ended: Collection[str] = ()
    ) -> tuple[StreamPublisher, ...]:
        seen = tuple(one for one in publishers if one.connection in self.connections)
        return whole(self, seen, added, ended)

    monkeypatch.setattr(OldProducers, "unproven", unproven)
    fails_somewhere()


def test_a_client_that_was_away_at_both_looks_taken_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    def back(self: OldProducers, *_: object) -> OldProducers:
        return self

    monkeypatch.setattr(OldProducers, "back", back)
    fails_somewhere()


def test_a_client_that_was_away_after_the_burst_proven_by_one_new_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_any(self: OldProducers, publishers: Iterable[StreamPublisher], added: Collection[str]) -> set[str]:
        return {one.connection for one in publishers if one.stream in added} - set(self.connections)

    monkeypatch.setattr(OldProducers, "_on_all", on_any)
    fails_somewhere()


def test_halving_without_the_ends_of_the_kept_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(found: ShardMap, ends: Mapping[int, Offset], definition: str, at: TimestampMs) -> ShardMap:
        return shard_changes.halved(found, dict.fromkeys(ends, Offset(MAX_OFFSET)), definition, at)

    monkeypatch.setattr(fast_shard_simulation, "halved", halved)
    fails_somewhere()


def test_halving_before_readers_know_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_shard_simulation, "MAP_SETTLE_S", 0.0)
    fails_somewhere()


def test_a_commit_by_an_old_epoch_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastShards, "_is_fenced", lambda *_: False)
    fails_somewhere()


def test_a_position_that_a_member_gives_on_before_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FastShards._give

    def give(self: FastShards, number: int, index: int) -> None:
        whole(self, number, index)
        read = max(one.at.get(number, 0) for one in self.members)
        self.members[index].at[number] = self.members[index].begins[number] = read

    monkeypatch.setattr(FastShards, "_give", give)
    fails_somewhere()
