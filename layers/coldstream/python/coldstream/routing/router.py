"""The router of a sharded stream, by its hash."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from coldstream.manifest.shard_map import ShardHash
from coldstream.routing.binding_key import BindingKeyRouter
from coldstream.routing.consistent import ConsistentRouter, HashOn
from coldstream.routing.message import Binding, Router
from coldstream.routing.modulus import ModulusRouter
from coldstream.routing.murmur3 import Murmur3Router
from coldstream.routing.random_choice import RandomRouter


def router_of(
    hash_: ShardHash,
    bindings: Sequence[Binding],
    *,
    hash_on: HashOn | None = None,
    version: tuple[int, int] = (4, 3),
    random: Random | None = None,
) -> Router:
    """Return what chooses among the bindings of an exchange, or among the partitions of a super stream.

    `bindings` are in the order of the partitions (murmur3), or of binding (consistent); else their order is nothing.
    `hash_on` counts for consistent alone. `version` is the broker's, its first two numbers.
    """
    if hash_ is ShardHash.MURMUR3:
        return Murmur3Router(bindings)
    if hash_ is ShardHash.BINDING_KEY:
        return BindingKeyRouter(bindings)
    if hash_ is ShardHash.MODULUS:
        return ModulusRouter(bindings, version=version)
    if hash_ is ShardHash.CONSISTENT:
        return ConsistentRouter(bindings, hash_on, version=version)
    return RandomRouter(bindings, random)
