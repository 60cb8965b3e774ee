"""In which order the messages of different partitions come out."""

from __future__ import annotations

from typing import Literal, get_args

from coldstream.consumer.batch import Give
from coldstream.consumer.gate import ArrivalGate, Gate
from coldstream.consumer.group_gate import GroupKeyGate
from coldstream.consumer.key_gate import KeyGate
from coldstream.consumer.time_merge import TimeMerge
from coldstream.manifest.shard_map import ShardMap

ShardOrder = Literal["key", "time", "arrival"]


def check_order(order: str) -> None:
    """Raise ValueError unless it is an order."""
    if order not in get_args(ShardOrder):
        raise ValueError(f"order is 'key', 'time' or 'arrival', got {order!r}")


def gate_of(order: ShardOrder, found: ShardMap, put: Give, merge_wait_s: float, *, grouped: bool = False) -> Gate:
    """Return the gate that keeps an order, in front of a queue; with `grouped`, across the members of a group."""
    match order:
        case "key":
            return (GroupKeyGate if grouped else KeyGate)(found, put)
        case "time":
            return TimeMerge(put, merge_wait_s)
        case _:
            return ArrivalGate(put)
