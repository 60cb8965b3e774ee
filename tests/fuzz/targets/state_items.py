"""State items: JSON of one owner each, in the table, which programs of several releases read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from coldstream.gateway.alone.turns import TurnName, Turns, TurnTaker
from coldstream.gateway.history.stored_offsets import StoredOffset
from coldstream.groups.group_items import _beat_of
from coldstream.groups.group_start import GroupStart
from coldstream.groups.group_state import GroupSeat, GroupState
from coldstream.groups.positions import GroupPosition, position_key
from coldstream.jobs.job import Job
from coldstream.jobs.log_lines import LogLine, items_of
from coldstream.manifest.state_item import StateItem
from coldstream.queues.state import BatchIntent, QueueArchiveState
from coldstream.shards.looks import ShardLooks
from coldstream.shards.old_producers import OldClient, OldProducers
from coldstream.store.direct_names import DirectName
from coldstream.units import Epoch, Offset, TimestampMs
from tests.fuzz.fuzz_target import CORRUPT, FuzzTarget, choose, chosen
from tests.fuzz.item_samples import sample_job
from tests.manifest.world import STREAM

_PARTITION = "#fuzzed"
_ITEM = f"state item {_PARTITION} "
_SESSION = "0123456789abcdef" * 2


def _item(data: bytes, key: str = "key") -> StateItem:
    return StateItem(_PARTITION, key, 1, data)


_READERS: tuple[Callable[[bytes], Any], ...] = (
    lambda data: Turns.from_bytes(data, source=_ITEM),
    lambda data: GroupState.from_bytes(data, source=_ITEM),
    lambda data: GroupStart.from_item(_item(data)),
    lambda data: GroupPosition.from_item(_item(data, position_key(7))),
    lambda data: _beat_of(_item(data)),
    lambda data: StoredOffset.from_item(STREAM.incarnation, _item(data)),
    lambda data: QueueArchiveState.from_bytes(data, source=_ITEM),
    lambda data: DirectName.of_item(_item(data, _DIRECT.key)),
    lambda data: Job.from_item(_item(data)),
    lambda data: LogLine.from_item(_item(data)),
    lambda data: ShardLooks.from_item(_item(zlib.compress(data, 1))),
    lambda data: ShardLooks.from_item(_item(data)),
)


def _state(data: bytes) -> None:
    read, data = choose(data, _READERS)
    read(data)


def _seeds() -> Iterator[bytes]:
    me = TurnTaker(_SESSION, 1)
    yield chosen(0, Turns((me, TurnTaker(_SESSION, 2)), me, 3, 0).to_bytes(TurnName("/", "orders", "me")))
    seats = GroupState((GroupSeat(_SESSION, "me"),)).with_partitions((0, 1)).taken(_SESSION, (0, 1))
    yield chosen(1, seats.to_bytes())
    yield chosen(2, GroupStart(2, {0: Offset(5), 1: None}).to_item(_PARTITION).data)
    yield chosen(3, GroupPosition(7, 2, Offset(5)).to_item(_PARTITION).data)
    yield chosen(4, b'{"version": 1, "lease_ms": 30000}')
    yield chosen(5, StoredOffset(STREAM.incarnation, "me", Offset(5), TimestampMs(7)).to_item().data)
    intent = BatchIntent(Offset(5), Offset(9), 100, '"etag"', 1)
    yield chosen(6, QueueArchiveState(STREAM, Epoch(2), Offset(5), TimestampMs(7), intent).to_bytes())
    yield chosen(7, _DIRECT.data)
    yield chosen(8, sample_job().to_item().data)
    yield chosen(9, items_of("a" * 26, 0, [(TimestampMs(5), "ü")])[0].data)
    known = OldProducers((OldClient("me"),), ("a",), TimestampMs(5))
    looks = ShardLooks(2, known, {0: Offset(5)}, TimestampMs(1), TimestampMs(2), TimestampMs(3), {1: Offset(9)})
    yield chosen(10, zlib.decompress(looks.to_bytes()))
    yield chosen(11, looks.to_bytes())
    for number in range(len(_READERS)):
        yield chosen(number, b'{"version": 1, "a":' + b"[" * 1500)
        yield chosen(number, json.dumps([1e300, None, True, {}]).encode())


_DIRECT = DirectName(STREAM, Offset(3), (("owner", "ü"),)).to_item()

TARGETS = (FuzzTarget("state-items", _state, _seeds, CORRUPT, _ITEM),)
