"""The history of a replacement, replayed into its partitions by the engine of `coldstream replay`.

The publishing id of a message follows from its offset, and the reference from the source alone: so each message is in
the new partitions once, however often it is asked for. It goes where the new version's hash puts its routing key. What
went through an exchange has that among its annotations; clients of super streams keep it where they please, and the
definition says where (`routing_key_field`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coldstream.errors import GapError, InvalidInputError, NoRouteError, ShardChangeError
from coldstream.format.amqp.message import Message
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.manifest.stream import StreamId
from coldstream.replay.request import ReplayRequest
from coldstream.replay.routing import RoutingKey
from coldstream.replay.stream import replay_to_stream
from coldstream.replay.target import StreamTarget
from coldstream.routing.message import Binding, Destination, RoutedMessage
from coldstream.routing.router import router_of
from coldstream.shards.archived import unexplained_gap
from coldstream.shards.definition import ShardDefinition
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset

_PUBLISHED_KEY = RoutingKey("message_annotations", "x-routing-key")
_MORE_KEYS = "x-cc"


@dataclass(frozen=True, slots=True)
class ArchiveReplay:
    """Implement `replay_port.ShardReplay` over an archive, and a broker by its stream URI."""

    table: ManifestReads
    objects: ObjectReads
    broker: str = field(repr=False)  # it has a password

    def check(self, definition: ShardDefinition) -> None:
        """Raise ShardChangeError if it cannot be told where its hash puts an archived message."""
        routing_key_of(definition)

    def replay(
        self, source: StreamId, start: Offset, end: Offset, targets: Sequence[Partition], definition: ShardDefinition
    ) -> None:
        """Publish what is archived of a source between two offsets; gaps that a loss explains are passed over.

        Raises GapError for another gap, before anything is published.
        """
        gap = unexplained_gap(self.table, source, start=start, end=end)
        if gap is not None:
            raise GapError(str(source), gap.first_offset, gap.next_offset, gap.reason)
        name = hashlib.sha256(source.incarnation.encode()).hexdigest()[:16]
        target = StreamTarget(
            self.broker,
            definition.name,
            source.vhost,
            publisher=f"coldstream-shards-{name}",
            partitions=tuple(one.name for one in targets),
            place_of=place_of(definition, targets),
        )
        replay_to_stream(self.table, self.objects, ReplayRequest(source, start, end, skip_gaps=True), target)


def routing_key_of(definition: ShardDefinition) -> RoutingKey:
    """Return where archived messages have what their hash looks at. Raises ShardChangeError if nobody said."""
    if definition.hash_header is not None or definition.hash_property == "timestamp":
        raise ShardChangeError(
            f"{definition}: brokers hash a header or a timestamp with its type, each release in another way, so a"
            " replay cannot follow; declare another name, and replay to that exchange"
        )
    if definition.hash_property is not None:
        return RoutingKey("properties", definition.hash_property)
    if definition.routing_key_field is not None:
        return RoutingKey.parse(definition.routing_key_field, "routing_key_field")
    if definition.kind is ShardKind.SUPER_STREAM:
        raise ShardChangeError(
            f"{definition}: where its messages have their routing key is known to its producers alone; say it in the"
            ' definition, as routing_key_field = "properties.message_id"'
        )
    return _PUBLISHED_KEY


def place_of(definition: ShardDefinition, targets: Sequence[Partition]) -> Callable[[Message], int]:
    """Return what tells the index of the partition that a message goes to, the same whenever it is asked.

    It raises InvalidInputError for a message without key, or with one that no partition has.
    """
    if definition.hash is ShardHash.RANDOM:
        return lambda message: message.offset % len(targets)
    key = routing_key_of(definition)
    places = {one.name: place for place, one in enumerate(targets)}
    router = router_of(definition.hash, [_binding(definition.hash, one, place) for place, one in enumerate(targets)])
    has_more_keys = key == _PUBLISHED_KEY and definition.hash is ShardHash.MODULUS

    def find(message: Message) -> int:
        more = _more_keys(message) if has_more_keys else ()
        try:
            destinations = router.destinations(RoutedMessage(key.of(message), more))
        except NoRouteError as err:
            raise InvalidInputError("routing key", f"the message at offset {message.offset}: {err}") from err
        return places[destinations[0].name]

    return find


def _binding(hash_: ShardHash, one: Partition, place: int) -> Binding:
    destination = Destination(one.name)
    if hash_ is ShardHash.CONSISTENT:
        return Binding(destination, str(one.weight))
    return Binding(destination, f"{place:04}" if one.binding_key is None else one.binding_key)


def _more_keys(message: Message) -> tuple[str, ...]:
    """Return the keys of the header CC, which x-modulus-hash hashes, too."""
    more = (message.message_annotations or {}).get(_MORE_KEYS)
    return tuple(one for one in more if isinstance(one, str)) if isinstance(more, list | tuple) else ()
