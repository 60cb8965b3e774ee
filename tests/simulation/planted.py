"""Mistakes put into the shipped code, each of which the judge has to notice within a few seeds.

`PLANTED` has, for each, what makes it and the first seed that notices it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from coldstream.agent.proof.broker import Proof, ProofVerdict
from coldstream.agent.proof.proving import StreamProving
from coldstream.agent.slice_delivery import SliceDelivery
from coldstream.consumer.brokerlog import BrokerLog
from coldstream.consumer.position import ReadPosition
from coldstream.lifecycle.stores import LifecycleStores

Planted = Callable[[], AbstractContextManager[Any]]

_deliver = SliceDelivery.deliver
_advance = ReadPosition.advance


async def _believe(self: StreamProving, witness: Any) -> Proof:
    return Proof(ProofVerdict.COMMITTED, witness)


async def _skip_some(self: SliceDelivery, slice_: Any, *arguments: Any, **named: Any) -> None:
    if slice_.first_offset % 5:
        await _deliver(self, slice_, *arguments, **named)


async def _reach_back(self: BrokerLog, offset: Any) -> bool:
    return True


def _stand_still(self: ReadPosition, header: Any) -> None:
    if header.chunk_id % 17:
        _advance(self, header)


def _instead(target: Any, name: str, made: Any) -> Planted:
    return lambda: patch.object(target, name, made)


PLANTED: dict[str, Planted] = {
    "an agent takes every chunk for confirmed": _instead(StreamProving, "prove", _believe),
    "an agent skips slices": _instead(SliceDelivery, "deliver", _skip_some),
    "a consumer trusts a node that has lost what comes next": _instead(BrokerLog, "reaches_back_to", _reach_back),
    "a consumer forgets how far it is": _instead(ReadPosition, "advance", _stand_still),
    "objects go without a grace": _instead(LifecycleStores, "due_at", lambda _, removed_at: removed_at),
}
