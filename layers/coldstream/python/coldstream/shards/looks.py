"""What was seen of a change so far, kept in the table: the command may end between two looks, and be run elsewhere.

One state item for each map, in the partition `#shard-looks`, under the map's key: deflated JSON of the version that is
changed to, the clients of before, and the ends of the parents at the last look that saw nobody old.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Self

from coldstream.errors import CorruptionError
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.state_item import StateItem
from coldstream.plain_json import read_json
from coldstream.shards.old_producers import OldClient, OldProducers
from coldstream.store.ports import ManifestTable
from coldstream.store.shard_maps import map_key
from coldstream.units import Offset, TimestampMs

LOOKS = "#shard-looks"
MAX_JSON_BYTES = 16_000_000
"""Bytes that are inflated at most."""


@dataclass(frozen=True, slots=True)
class ShardLooks:
    """What was seen since the change to `version` began. `revision` is the state item's, 0 if there is none yet.

    `seen_at` is when the map was first read after it was written, `changed_at` when the bindings had changed,
    `replayed` how far the partitions are replayed, by number.
    """

    version: int
    producers: OldProducers | None = None
    ends: Mapping[int, Offset] = field(default_factory=dict)
    ends_at: TimestampMs | None = None
    seen_at: TimestampMs | None = None
    changed_at: TimestampMs | None = None
    replayed: Mapping[int, Offset] = field(default_factory=dict)
    revision: int = 0

    def to_bytes(self) -> bytes:
        """Write it; connections and clients take most of it."""
        known = self.producers
        content = {
            "version": self.version,
            "ends": {str(number): end for number, end in self.ends.items()},
            "ends_at": self.ends_at,
            "seen_at": self.seen_at,
            "changed_at": self.changed_at,
            "replayed": {str(number): end for number, end in self.replayed.items()},
            "producers": known
            and {
                "clients": [astuple(one) for one in known.clients],
                "connections": known.connections,
                "looked_at": known.looked_at,
                "is_closed": known.is_closed,
                "is_overfull": known.is_overfull,
            },
        }
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)

    @classmethod
    def from_item(cls, item: StateItem) -> Self:
        """Read what `to_bytes` wrote. Raises CorruptionError."""
        unpacker = zlib.decompressobj()
        try:
            content = read_json(unpacker.decompress(item.data, MAX_JSON_BYTES))
            known = content["producers"]
            if known is not None:
                clients = tuple(OldClient(*one) for one in known.pop("clients"))
                known = OldProducers(clients, tuple(known.pop("connections")), **known)
            return cls(
                content["version"],
                known,
                {int(number): Offset(end) for number, end in content["ends"].items()},
                content["ends_at"],
                content["seen_at"],
                content["changed_at"],
                {int(number): Offset(end) for number, end in content["replayed"].items()},
                item.revision,
            )
        except (zlib.error, ValueError, TypeError, KeyError, AttributeError) as err:
            raise CorruptionError(f"state item {item.partition} {item.key}", 0, f"malformed: {err}") from err


def find_looks(table: ManifestTable, found: ShardMap) -> ShardLooks:
    """Return what was seen since the change to the newest version began. Cost: one GetItem."""
    item = table.state_item(LOOKS, map_key(found.vhost, found.name))
    if item is None:
        return ShardLooks(found.newest.version)
    looks = ShardLooks.from_item(item)
    # What was seen of an earlier change says nothing of this one.
    is_of_this = looks.version == found.newest.version
    return looks if is_of_this else ShardLooks(found.newest.version, revision=item.revision)


def keep_looks(table: ManifestTable, found: ShardMap, looks: ShardLooks) -> ShardLooks:
    """Write it over what was read. Cost: one PUT. Raises LostRaceError if another command looked meanwhile."""
    kept = replace(looks, revision=looks.revision + 1)
    table.put_state(StateItem(LOOKS, map_key(found.vhost, found.name), kept.revision, kept.to_bytes()))
    return kept
