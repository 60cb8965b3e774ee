"""Shard maps: the bucket alone must tell each map that the table has, and the table each that the bucket tells.

They are of no stream, so a finding names the logical name, and the hash of the names in place of an incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from zlib import crc32

from coldstream.errors import CorruptionError
from coldstream.manifest.shard_events import event_of_map, map_of
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.scrub.damage import Damage
from coldstream.scrub.entry_checks import SETTLED_MS
from coldstream.scrub.examiner import LOOKS, Examiner
from coldstream.scrub.reads import ScrubReads
from coldstream.scrub.trouble import Trouble
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.shard_maps import SHARDS, event_key
from coldstream.units import ByteRange, TimestampMs


def check_maps(
    reads: ScrubReads, control: ControlObjects, now: Callable[[], TimestampMs], after: str, *, repair: bool
) -> Iterator[tuple[str, Examiner]]:
    """Check the maps whose keys come after `after`; yield each key, and what was found.

    Cost: a listing every thousand revisions, and for each map three GetItems or HEADs at most, and a PUT to mend it.
    """
    # The bucket first: an object is written after its map, so the map of each that is seen here is in the table.
    noted = _newest(reads, control.keys)
    keys = sorted({*noted, *reads.state_keys(SHARDS)})
    for key in (one for one in keys if one > after):
        names = StreamId("/", key, Incarnation(key))
        item = reads.state_item(SHARDS, key)
        try:
            if item is not None:
                found = map_of(item.data, source=f"shard map {key}")
                names = StreamId(found.vhost, found.name, Incarnation(key))
            examiner = Examiner(reads, names, now, repair=repair)
            _check(examiner, control, item, noted.get(key, (0, "")))
        except CorruptionError as err:
            examiner = Examiner(reads, names, now, repair=repair)
            examiner.record(Trouble(Damage.ITEM, str(err), key=err.source))
        yield key, examiner


def _newest(reads: ScrubReads, keys: Keys) -> dict[str, tuple[int, str]]:
    """Return the newest revision of each map that the bucket has, and its key, by the hash of the names."""
    parsed = ((keys.parse(key), key) for key in sorted(reads.keys_under(keys.shard_notes)))
    known = ((one.id or "", one.revision or 0, key) for one, key in parsed if one is not None)
    return {id_: max((revision, key) for _, revision, key in of) for id_, of in groupby(known, key=lambda one: one[0])}


def _check(examiner: Examiner, control: ControlObjects, item: StateItem | None, noted: tuple[int, str]) -> None:
    revision, noted_key = noted
    if item is None or item.revision < revision:
        has = "no map" if item is None else f"its map at revision {item.revision}"
        detail = f"the table has {has}, and the bucket one at revision {revision}{_names_of(examiner, noted_key)}"
        examiner.record(Trouble(Damage.SHARD_MAP, detail, key=noted_key))
        return
    found = map_of(item.data, source="shard map")
    journaled = examiner.reads.state_item(f"#shard-events#{item.key}", event_key(item.revision))
    if journaled is None:
        examiner.record(Trouble(Damage.SHARD_MAP, f"its journal has no event to revision {item.revision}"))
        return
    event, after = event_of_map(journaled.data, source=f"event {item.revision} of {found}")
    if after != found:
        examiner.record(Trouble(Damage.SHARD_MAP, f"its journal has another map at revision {item.revision}"))
        return
    if event.at + SETTLED_MS > examiner.now():
        return  # its object may be about to be written
    key = control.keys.shard_note(found.vhost, found.name, found.revision)
    if any(_has(examiner, key, journaled.data) for _ in range(LOOKS)):
        return
    finding = examiner.record(Trouble(Damage.SHARD_NOTE, f"the control object {key} is missing, or differs", key=key))
    if examiner.repair:
        examiner.reads.write(lambda: control.write_shard_map(event, found))
        examiner.mended.append(finding)


def _has(examiner: Examiner, key: str, data: bytes) -> bool:
    info = examiner.reads.info(key)
    return info is not None and info.size_bytes == len(data) and info.crc32 in {None, crc32(data)}


def _names_of(examiner: Examiner, key: str) -> str:
    """Return whose map lies at a key, for people: the table does not tell."""
    info = examiner.reads.info(key)
    if info is None:
        return ""
    return f", {event_of_map(examiner.reads.range(key, ByteRange(0, info.size_bytes)), source=key)[1]}"
