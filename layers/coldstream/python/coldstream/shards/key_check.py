"""Whether the newest archived messages of each partition are where the map's hash puts their routing keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.format.amqp.message import Message, messages
from coldstream.manifest.shard_map import Partition, ShardHash, ShardMap
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.replay.routing import RoutingKey
from coldstream.routing.detect import ClientHash, detect_hash
from coldstream.routing.modulus import modulus_hash
from coldstream.routing.murmur3 import partition_of
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.store.streams import newest
from coldstream.units import Offset

MESSAGES = 1000
"""Of each partition, the newest."""

MAX_TOLD = 10


@dataclass(frozen=True, slots=True)
class MisroutedMessage:
    """A message that the hash puts into partition `belongs`, None for a key that no partition has."""

    partition: int
    offset: Offset
    key: str
    belongs: int | None


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """How many messages were looked at, how many are in their place, and the first few that are not.

    `without_key` have no key there. `clients` is what the keys of a super stream say about the clients that hashed
    them, None of any other. Numbers are those of the map.
    """

    looked_at: int
    in_place: int
    without_key: int
    misrouted: tuple[MisroutedMessage, ...]
    clients: ClientHash | None


def check_keys(table: ManifestReads, objects: ObjectReads, found: ShardMap, key: RoutingKey) -> KeyCheck:
    """Look at the newest archived messages of the newest version's partitions, as far as that version routed them.

    Cost: a few requests for each partition. Raises InvalidInputError for a hash that does not look at the key alone;
    what reading raises.
    """
    place_of = _place_of(found)
    samples: list[tuple[str, int]] = []
    misrouted: list[MisroutedMessage] = []
    in_place = without_key = 0
    for place, one in enumerate(found.current):
        for message in _newest_messages(table, objects, found, one):
            text = key.find(message)
            if text is None:
                without_key += 1
                continue
            samples.append((text, place))
            belongs = place_of(text)
            if belongs == place:
                in_place += 1
            elif len(misrouted) < MAX_TOLD:
                number = None if belongs is None else found.newest.partitions[belongs]
                misrouted.append(MisroutedMessage(one.number, Offset(message.offset), text, number))
    is_of_clients = found.newest.hash is ShardHash.MURMUR3
    clients = detect_hash(samples, len(found.current)).hash if is_of_clients else None
    return KeyCheck(len(samples) + without_key, in_place, without_key, tuple(misrouted), clients)


def _place_of(found: ShardMap) -> Callable[[str], int | None]:
    """Return what tells the place in the newest version of a key."""
    number = len(found.current)
    match found.newest.hash:
        case ShardHash.MURMUR3:
            return lambda key: partition_of(key, number)
        case ShardHash.MODULUS:
            return lambda key: modulus_hash(key) % number
        case ShardHash.BINDING_KEY:
            places = {one.binding_key: place for place, one in enumerate(found.current)}
            return places.get
        case _:
            raise InvalidInputError("--check-keys", f"is not for {found.newest.hash}, which no key alone decides")


def _newest_messages(table: ManifestReads, objects: ObjectReads, found: ShardMap, one: Partition) -> Iterator[Message]:
    stream = newest(table, found.vhost, one.name)
    head = None if stream is None else table.head(stream.incarnation)
    if stream is None or head is None or head.next_offset is None:
        return
    # Below these offsets, producers of earlier versions wrote here, too; an edge without a seal may end anywhere.
    seals = [edge.seal for edge in found.lineage if edge.parent == one.number]
    if None in seals:
        return
    routed_from = max(
        one.start,
        *(seal for seal in seals if seal is not None),
        *(edge.child_from for edge in found.lineage if edge.child == one.number),
        head.next_offset - MESSAGES,
    )
    for part in plan_scan(table, stream, Offset(routed_from), head.next_offset):
        if isinstance(part, ScanSlice):
            for chunk in read_slice(objects, part):
                yield from messages(chunk, source=part.key, from_offset=Offset(routed_from))
