"""What a change of a sharded stream works on, and what it tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import ShardMap
from coldstream.shards.broker_port import ShardBroker
from coldstream.shards.replay_port import ShardReplay
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.shard_maps import ShardMapWriter
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class ShardContext:
    """The archive, the vhost of a broker, and who changes them.

    `now` is AWS's clock (`store.clock`), never the host's. `are_producers_restarted` is the operator's word that no
    producer of an earlier version is left, `may_replay` that a change which needs a replay may do one, by
    `replay`. `pause` waits a number of seconds between two looks at the broker.
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    broker: ShardBroker
    now: Callable[[], TimestampMs]
    by: str = ""
    are_producers_restarted: bool = False
    may_replay: bool = False
    replay: ShardReplay | None = None
    pause: Callable[[float], None] = time.sleep
    on_step: Callable[[str], None] = field(default=lambda _: None)

    def write(self, changed: ShardMap, kind: ShardEventKind, detail: str = "") -> None:
        """Write a map over the one of the revision before. The broker follows it: write first, then change there.

        Raises LostRaceError, OutcomeUnknownError.
        """
        self._writer.write(changed, kind, self.now(), detail)

    def protect(self, found: ShardMap) -> None:
        """Write the bucket's object of a map that was found, unless it is there: before anything at the broker follows.

        Raises CorruptionError.
        """
        self._writer.protect(found)

    @property
    def _writer(self) -> ShardMapWriter:
        return ShardMapWriter(self.table, ControlObjects(self.objects, self.keys), self.by)


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What was done, and what is waited for, each in a sentence; nothing waited for is the end of the change."""

    done: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
