"""Write the object of a group: merge it if it stays identity, rewrite it if it is to be compressed.

The key is always fresh: its generation is above those of the group's entries, it is one that may still be committed,
and it has no object. Any other key could be that of a tombstone, and whatever is at that key is deleted one day. An
object that is there already is never taken for ours, even if the bytes are the same: its writer may be about to commit
it, or to discard it because another was first. The complete object of a writer that was killed stays until it is
collected as garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coldstream.compact.merge import merge
from coldstream.compact.merged_object import MergedObject
from coldstream.compact.rewrite import rewrite
from coldstream.compact.verifier import read_verified
from coldstream.errors import CorruptionError, ObjectExistsError, UnavailableError
from coldstream.format.seekable import DEFAULT_LEVEL
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.manifest.note import EntryNote
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore

MAX_GENERATIONS = 64
"""Keys that are tried. Each taken one is that of a killed writer, or of another compaction that is under way."""


@dataclass(frozen=True, slots=True)
class MergedFragment:
    """The entry of a merged object, and how many bytes were read and sent here, and copied by the store alone."""

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
    least_generation: int = 0,
    on_bytes: Callable[[int], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> MergedFragment:
    """Write the merged fragment of a group to a key of its own, without reading or changing the manifest.

    The key has a generation of `least_generation` or more: that of the head when the group was planned.

    `on_bytes` is called with sizes that add up to `group.identity_bytes`, and again from 0 if another writer takes the
    key first. If this raises, it leaves no object and no upload; after UnavailableError that is not certain.

    Raises CorruptionError, naming key and position, if two looks find that a fragment is not what the manifest says,
    as a job leaves out such a group for good; ObjectNotFoundError or
    ConflictError if its object is gone or was replaced; StoppedError once `should_stop` is true; ValueError for a group
    that cannot have that encoding.
    """
    if encoding is Encoding.IDENTITY and any(entry.encoding is not encoding for entry in group.entries):
        raise ValueError("compressed fragments cannot be merged into an identity fragment")
    note = _note(group, encoding)
    is_doubted = False
    for generation, key in _free_keys(objects, keys, incarnation, group, least_generation):
        try:
            if encoding is Encoding.IDENTITY:
                merged = merge(objects, key, group, note=note, on_bytes=on_bytes, should_stop=should_stop)
            else:
                merged = rewrite(
                    objects, key, group, note=note, level=level, on_bytes=on_bytes, should_stop=should_stop
                )
        except ObjectExistsError:
            continue  # another writer was faster, at this key
        except CorruptionError as err:
            if err.source != key:
                if is_doubted:
                    raise
                is_doubted = True
                continue
            # S3 checked the sum of all parts. Reading them tells which fragment is damaged.
            _raise_damage(objects, group, should_stop)
            raise UnavailableError(f"S3 refused {key}: its bytes are not those that were sent and copied") from err
        return _merged_fragment(group, key, generation, merged)
    raise UnavailableError(f"offset {group.first_offset}: all {MAX_GENERATIONS} keys that were tried have objects")


def _free_keys(
    objects: ObjectStore, keys: Keys, incarnation: Incarnation, group: Group, least_generation: int
) -> Iterator[tuple[int, str]]:
    """Yield generations, and their keys, that have no object. Cost: a HEAD each."""
    first = max(least_generation, 1 + max(entry.generation for entry in group.entries))
    for generation in range(first, first + MAX_GENERATIONS):
        key = keys.fragment(incarnation, group.first_offset, generation)
        # This only saves work. Who gets the key is decided by the condition on the write that completes the object.
        if objects.info(key) is None:
            yield generation, key


def _raise_damage(objects: ObjectStore, group: Group, should_stop: Callable[[], bool]) -> None:
    """Read the fragments of an object that the store refused, and raise what is wrong with them, if anything is."""
    for _ in read_verified(objects, group, should_stop):
        pass


def _note(group: Group, encoding: Encoding) -> str:
    """Return the note of the merged object, which says nothing of the object itself: it comes before the bytes."""
    content = group.merged(key=group.entries[0].key, generation=0, object_bytes=0, crc32=0)
    return EntryNote.of(content, has_points=encoding is Encoding.IDENTITY).to_text()


def _merged_fragment(group: Group, key: str, generation: int, merged: MergedObject) -> MergedFragment:
    entry = group.merged(
        key=key,
        generation=generation,
        object_bytes=merged.object_bytes,
        crc32=merged.crc32,
        frames=merged.frames,
    )
    return MergedFragment(entry, merged.read_bytes, merged.sent_bytes, merged.copied_bytes)
