"""The shard maps of an archive: an item each, in the partition `#shards`, with a journal of their own beside it.

    #shards                       {sha256 of the names}       the map
    #shard-events#{the same}      {revision, 20 digits}       the event to that revision, with the map after it

Both are written in one transaction. The bucket gets the event's bytes after it, and before anything at a broker
follows from them (`protect`): so a table that is rebuilt knows every lineage on which a partition was made or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from coldstream.errors import CorruptionError, LostRaceError
from coldstream.manifest.shard_events import ShardEvent, ShardEventKind, event_of_map, map_bytes, map_of
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.state_item import StateItem
from coldstream.store.control import ControlObjects
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.store.sortkeys import names_key
from coldstream.units import TimestampMs

SHARDS = "#shards"


def find_map(table: ManifestReads, vhost: str, name: str) -> ShardMap | None:
    """Return the map of a logical name, None if there is none. Cost: one GetItem. Raises CorruptionError."""
    item = table.state_item(SHARDS, map_key(vhost, name))
    return None if item is None else map_of(item.data, source=_source(item))


def iter_maps(table: ManifestReads) -> Iterator[ShardMap]:
    """Yield all maps, in no order that means anything. Cost: one Query a page."""
    for item in table.state_items(SHARDS):
        yield map_of(item.data, source=_source(item))


def map_events(table: ManifestReads, vhost: str, name: str) -> Iterator[tuple[ShardEvent, ShardMap]]:
    """Yield the events of a map, by revision, each with the map after it. Cost: one Query a page."""
    for item in table.state_items(events_partition(vhost, name)):
        yield event_of_map(item.data, source=_source(item))


def map_event(table: ManifestReads, vhost: str, name: str, revision: int) -> tuple[ShardEvent, ShardMap] | None:
    """Return the event of a map to a revision, with the map after it. Cost: one GetItem. Raises CorruptionError."""
    item = table.state_item(events_partition(vhost, name), event_key(revision))
    return None if item is None else event_of_map(item.data, source=_source(item))


def restore_map(table: ManifestTable, events: Iterable[tuple[ShardEvent, ShardMap]]) -> None:
    """Write a map and its journal as the bucket has them, by revision: the last is the map. Safe to repeat.

    A map that is in the table stays as it is. The journal comes first: whoever sees a map can `protect` it. Cost: a PUT
    for each event, and one. Raises OutcomeUnknownError.
    """
    newest = None
    for event, newest in events:
        partition = events_partition(newest.vhost, newest.name)
        _add(table, StateItem(partition, event_key(event.revision), 1, map_bytes(newest, event)))
    if newest is not None:
        _add(table, StateItem(SHARDS, map_key(newest.vhost, newest.name), newest.revision, map_bytes(newest)))


def _add(table: ManifestTable, item: StateItem) -> None:
    with suppress(LostRaceError):  # it is there: this is a rebuild that was killed, begun again
        table.add_state(item)


@dataclass(frozen=True, slots=True)
class ShardMapWriter:
    """Writes maps. `by` is who does it."""

    table: ManifestTable
    control: ControlObjects
    by: str = ""

    def write(self, changed: ShardMap, kind: ShardEventKind, at: TimestampMs, detail: str = "") -> None:
        """Write a map over the one of the revision before, with its event, and then the bucket's object.

        Cost: one transaction of two items, and one PUT. Raises LostRaceError if the map is at another revision;
        ShardChangeError if no item can hold it; OutcomeUnknownError. An error of the bucket comes after the change:
        `protect` makes up for it, and so does a scrub.
        """
        event = ShardEvent(changed.revision, at, kind, self.by, detail)
        key = map_key(changed.vhost, changed.name)
        partition = events_partition(changed.vhost, changed.name)
        self.table.put_state(
            StateItem(SHARDS, key, changed.revision, map_bytes(changed)),
            # New at each revision, as no two writers get to the same one.
            StateItem(partition, event_key(changed.revision), 1, map_bytes(changed, event)),
        )
        self.control.write_shard_map(event, changed)

    def protect(self, found: ShardMap) -> None:
        """Write the bucket's object of a map that was read from the table, unless it is there.

        Whoever changes anything at a broker calls this before: the process that wrote the map may have died before its
        object. Cost: a HEAD, and a GetItem and a PUT if it is missing. Raises CorruptionError if the journal does not
        have this map.
        """
        if self.control.has_shard_map(found):
            return
        event = map_event(self.table, found.vhost, found.name, found.revision)
        if event is None or event[1] != found:
            raise CorruptionError(str(found), 0, f"the journal does not have its map at revision {found.revision}")
        self.control.write_shard_map(*event)


def map_key(vhost: str, name: str) -> str:
    """Return the key of the map of a logical name. Raises InvalidNameError."""
    return names_key(vhost, name).removesuffix("#")


def event_key(revision: int) -> str:
    """Return the key of the event to a revision."""
    return f"{revision:020}"


def events_partition(vhost: str, name: str) -> str:
    """Return the partition of the events of a map. Raises InvalidNameError."""
    return f"#shard-events#{map_key(vhost, name)}"


def _source(item: StateItem) -> str:
    return f"state item {item.partition} {item.key}"
