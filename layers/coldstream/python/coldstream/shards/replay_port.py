"""What a replacement asks of a replay: part of a partition's archive, into streams that no exchange leads to yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from coldstream.manifest.shard_map import Partition
from coldstream.manifest.stream import StreamId
from coldstream.shards.definition import ShardDefinition
from coldstream.units import Offset


class ShardReplay(Protocol):
    """Replays exactly once: what a target has of a source is not added again, whoever put it there."""

    def check(self, definition: ShardDefinition) -> None:
        """Raise ShardChangeError if it cannot be told where its hash puts an archived message."""
        ...

    def replay(
        self, source: StreamId, start: Offset, end: Offset, targets: Sequence[Partition], definition: ShardDefinition
    ) -> None:
        """Publish the messages from `start` up to `end`, in order, each to where the definition's hash puts it.

        Returns once all are confirmed. Calls go from lower offsets of a source to higher ones; one that is made again
        adds nothing. Raises UnavailableError, StreamNotFoundError, GapError, InvalidInputError (a message without key).
        """
        ...
