"""Write the object of a group: by a merge where it stays identity, by a rewrite where it is to be compressed.

The key is always fresh: its generation is above those of the group's entries, and nothing is at it. Any other could be
that of a tombstone, whose object, or the next one at that key, is deleted one day. An object that is there already is
never taken for ours, even with the very same bytes: who wrote it may be about to commit it, or to delete it because
another was first. So one writer alone knows each object that it made, and may delete it when it did not commit it. What
a writer that was killed left complete stays, unnamed, and costs what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coldstream.compact.made import Made
from coldstream.compact.merge import merge
from coldstream.compact.rewrite import rewrite
from coldstream.compact.source import read_verified
from coldstream.errors import BadCrcError, ObjectExistsError, UnavailableError
from coldstream.format.seekable import DEFAULT_LEVEL
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore

MAX_GENERATIONS = 64
"""Keys tried, of which those before the last are taken: by interrupted compactions, or others under way."""


@dataclass(frozen=True, slots=True)
class Written:
    """The entry of the object that was made, and how many bytes were read, sent, and copied by the store alone."""

    entry: FragmentEntry
    read_bytes: int
    sent_bytes: int
    copied_bytes: int


def write_group(
    objects: ObjectStore,
    keys: Keys,
    incarnation: Incarnation,
    group: Group,
    encoding: Encoding,
    *,
    level: int = DEFAULT_LEVEL,
    on_bytes: Callable[[int], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Written:
    """Make the merged fragment of a group at a key of its own; the manifest is not asked and not changed.

    `on_bytes` is called with sizes that add up to `group.identity_bytes`, again from nothing where another takes the
    key meanwhile. Whatever is raised, the object is not there, and no upload to it is left; but with UnavailableError
    that cannot always be known.

    Raises CorruptionError, naming key and position, where a fragment is not what the manifest says of it;
    ObjectNotFoundError and ConflictError where its object is gone or replaced; StoppedError once `should_stop` is true;
    ValueError for a group that cannot be of that encoding.
    """
    if encoding is Encoding.IDENTITY and any(entry.encoding is not encoding for entry in group.entries):
        raise ValueError("compressed fragments are not merged into an identity one")
    for generation, key in _free_keys(objects, keys, incarnation, group):
        try:
            if encoding is Encoding.IDENTITY:
                made = merge(objects, key, group, on_bytes=on_bytes, should_stop=should_stop)
            else:
                made = rewrite(objects, key, group, level=level, on_bytes=on_bytes, should_stop=should_stop)
        except ObjectExistsError:
            continue
        except BadCrcError as err:
            if err.source != key:
                raise
            _blame(objects, group, should_stop)
            raise UnavailableError(f"{key} did not become what was sent and copied to it") from err
        return _written(group, key, generation, made)
    raise UnavailableError(f"{MAX_GENERATIONS} objects are at the keys of {group.first_offset:020} already")


def _free_keys(objects: ObjectStore, keys: Keys, incarnation: Incarnation, group: Group) -> Iterator[tuple[int, str]]:
    """Yield generations and keys at which nothing is; cost: one HEAD each."""
    first = 1 + max(entry.generation for entry in group.entries)
    for generation in range(first, first + MAX_GENERATIONS):
        key = keys.fragment(incarnation, group.first_offset, generation)
        if objects.info(key) is None:
            yield generation, key


def _blame(objects: ObjectStore, group: Group, should_stop: Callable[[], bool]) -> None:
    """Read what an object that the store refused was made of, and raise what is wrong with it, if anything is."""
    for _ in read_verified(objects, group, should_stop):
        pass


def _written(group: Group, key: str, generation: int, made: Made) -> Written:
    entry = group.merged(
        key=key,
        generation=generation,
        object_bytes=made.object_bytes,
        crc32=made.crc32,
        frames=made.frames,
    )
    return Written(entry, made.read_bytes, made.sent_bytes, made.copied_bytes)
