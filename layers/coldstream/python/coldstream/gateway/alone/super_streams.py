"""Super streams: those that have a map in the archive, and those whose partitions are known by their names.

A broker knows a super stream by an exchange and its bindings, which the archive does not have. `coldstream shards`
leaves a map. Without one, nothing tells that `orders-0` and `orders-1` are of one super stream and not two streams, so
whoever runs the gateway has to say so, by patterns. Then NAME-0, NAME-1 and so on, without a number missing, are its
partitions, and their numbers the binding keys, as the clients and `rabbitmq-streams add_super_stream` name them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from coldstream.gateway.history.port import History
from coldstream.manifest.shard_map import ShardHash, ShardKind

_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}")


@dataclass(frozen=True, slots=True)
class SuperPartition:
    """A partition: its stream, and the binding key that leads to it."""

    stream: str
    binding_key: str | None


@dataclass(frozen=True, slots=True)
class SuperStreams:
    """The super streams of the archive. `patterns` are those of names without a map."""

    history: History
    patterns: Sequence[str] = ()

    async def partitions(self, vhost: str, name: str) -> tuple[SuperPartition, ...] | None:
        """Return the partitions in their order, None if no super stream has the name. Raises UnavailableError."""
        found = await self.history.shard_map(vhost, name)
        if found is not None:
            if found.kind is ShardKind.QUEUES:
                return None  # no client knows it as a super stream
            by_key = found.newest.hash is ShardHash.BINDING_KEY
            return tuple(
                SuperPartition(one.name, one.binding_key if by_key else str(place))
                for place, one in enumerate(found.current)
            )
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            return None
        prefix = f"{name}-"
        numbers = sorted(
            int(stream.removeprefix(prefix))
            for stream in await self.history.streams(vhost)
            if stream.startswith(prefix) and _NUMBER.fullmatch(stream.removeprefix(prefix))
        )
        if not numbers or numbers != list(range(len(numbers))):
            return None
        return tuple(SuperPartition(f"{prefix}{number}", str(number)) for number in numbers)

    async def place_of(self, vhost: str, super_stream: str, stream: str) -> int | None:
        """Return which partition of a super stream a stream is, None if it is none."""
        for place, one in enumerate(await self.partitions(vhost, super_stream) or ()):
            if one.stream == stream:
                return place
        return None
