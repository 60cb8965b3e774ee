"""Entries of a range of keys: the part of a rebuild that reads objects, which any number of processes can share.

The Spark job gives each task a slice of `list_fragments`, and feeds what the tasks return, in the order of the keys, to
one `stream.StreamRebuild`, which commits. One process does the same with threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter

from coldstream.errors import CorruptionError, NotFoundError, NotRestoredError, ReplacedError
from coldstream.flow.window import map_ahead
from coldstream.manifest.stream import Incarnation
from coldstream.rebuild.fragment import FoundFragment, read_fragment
from coldstream.store.keys import Keys
from coldstream.store.parsed_keys import KeyKind
from coldstream.store.ports import ListedObject, ObjectStore
from coldstream.store.second_look import look_twice
from coldstream.units import Offset, TimestampMs

READS_AT_ONCE = 16
"""Objects that are read at a time; each holds its index, 20 bytes a chunk."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that gives no entry, and why: it is damaged, has to be restored first, or went while it was read.

    `first_offset` and `generation` are what its key says; None and 0 if that is not the key of a fragment.
    """

    key: str
    reason: str
    first_offset: Offset | None = None
    generation: int = 0


def list_fragments(
    objects: ObjectStore, keys: Keys, incarnation: Incarnation, first_offset: Offset
) -> Iterator[ListedObject]:
    """Yield a stream's objects, from a first offset on, in order of their keys. Cost: one LIST a thousand."""
    prefix = keys.fragments(incarnation)
    # All keys of an offset come after its digits alone, whatever their generations.
    for listed in objects.listed(prefix, after=f"{prefix}{first_offset:020}"):
        parsed = keys.parse(listed.key)
        if parsed is not None and parsed.kind is KeyKind.FRAGMENT:
            yield listed


def list_as_of(
    objects: ObjectStore,
    keys: Keys,
    incarnation: Incarnation,
    first_offset: Offset,
    *,
    at: TimestampMs,
    on_gone: Callable[[str], None],
) -> Iterator[ListedObject]:
    """Yield a stream's objects as `list_fragments` does, from a bucket with versions, dated as of a time.

    An object that was there at `at` has the time of what was there, even if it was written over since: a copy into
    another storage class has the same bytes. `on_gone` is called with the keys of objects that were there then, and
    were deleted since. Cost: one LIST of versions a thousand.
    """
    first_key = f"{keys.fragments(incarnation)}{first_offset:020}"
    for key, group in groupby(objects.versions(keys.fragments(incarnation)), key=attrgetter("key")):
        parsed = keys.parse(key)
        if parsed is None or parsed.kind is not KeyKind.FRAGMENT or key < first_key:
            continue
        versions = list(group)  # newest first
        latest = versions[0]
        then = next((one for one in versions if one.last_modified <= at), None)
        was_there = then is not None and not then.is_delete_marker
        if latest.is_delete_marker:
            if was_there:
                on_gone(key)
            continue
        since = then.last_modified if then is not None and was_there else latest.last_modified
        yield ListedObject(key, latest.size_bytes, latest.etag, since)


def rebuild_entries(
    objects: ObjectStore, keys: Keys, listed: Iterable[ListedObject], *, at_once: int = READS_AT_ONCE
) -> Iterator[FoundFragment | Unreadable]:
    """Make the entries of listed objects, in their order, each from its object alone.

    Cost: that of `read_fragment`, for `at_once` objects at a time. Raises UnavailableError if the store does not
    answer, and no error of a single object.
    """
    with ThreadPoolExecutor(at_once, thread_name_prefix="rebuild") as pool:
        yield from map_ahead(pool, partial(_read, objects, keys), listed, max_calls=at_once)


def _read(objects: ObjectStore, keys: Keys, listed: ListedObject) -> FoundFragment | Unreadable:
    parsed = keys.parse(listed.key)
    if parsed is None or parsed.first_offset is None or parsed.generation is None:
        return Unreadable(listed.key, "not the key of a fragment")
    try:
        return look_twice(read_fragment, objects, listed, parsed.first_offset, parsed.generation)
    except (CorruptionError, NotRestoredError, NotFoundError, ReplacedError) as err:
        return Unreadable(listed.key, str(err), parsed.first_offset, parsed.generation)
