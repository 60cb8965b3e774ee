"""`FragmentWriter`: a stream's fragments into the archive, first the object, then the entry.

The object is complete before its entry is written, because readers trust every entry. An object without an entry harms
nobody: who writes the same fragment again finds it at its key, and what is left over at the end gets a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.archive.commit import commit_fragment
from coldstream.archive.draft import CutFragment
from coldstream.archive.orphans import Orphans
from coldstream.errors import BadCrcError, ObjectExistsError, UnavailableError
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.note import EntryNote
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs

MAX_GENERATIONS = 16
"""Keys tried for a fragment. Other bytes are at the first ones if, say, the target size changed in between."""


@dataclass(frozen=True, slots=True)
class FragmentWriter:
    """Puts and commits fragments of one stream, and remembers which of its objects no entry names. Threads share it."""

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    stream: StreamId
    now: Callable[[], TimestampMs]
    _orphans: Orphans = field(default_factory=Orphans)

    def put(self, fragment: CutFragment, least_generation: int) -> FragmentEntry:
        """Write a fragment at the first key, from a generation on, that is free or that holds it already.

        Closes the fragment. Cost: one PUT; a HEAD for each key that is taken. Raises UnavailableError.
        """
        with fragment:
            for generation in range(least_generation, least_generation + MAX_GENERATIONS):
                key = self.keys.fragment(self.stream.incarnation, fragment.first_offset, generation)
                entry = fragment.entry_at(key, generation)
                try:
                    self.objects.put_new(
                        key,
                        fragment.body,
                        size_bytes=fragment.object_bytes,
                        crc32=fragment.crc32,
                        note=EntryNote.of(entry).to_text(),
                    )
                except ObjectExistsError:
                    # A key never gets other bytes: an entry may name it already, and a URL may be in use.
                    existing = self.objects.info(key)
                    if (
                        existing is None
                        or existing.size_bytes != fragment.object_bytes
                        or existing.crc32 != fragment.crc32
                    ):
                        continue
                except BadCrcError as err:
                    # The chunks were verified, so the bytes went bad between here and S3.
                    raise UnavailableError(f"{key} did not arrive as it was sent") from err
                self._orphans.add(entry)
                return entry
        raise UnavailableError(
            f"{MAX_GENERATIONS} objects with other bytes are at the keys of {fragment.first_offset:020}"
        )

    def commit(self, entry: FragmentEntry, head: Head | None = None) -> bool:
        """Commit what `put` returned, as `commit_fragment` does; False if the manifest holds its offsets."""
        is_new = commit_fragment(self.table, self.stream, entry, self.now, head)
        if is_new:
            self.is_named(entry)
        return is_new

    def is_named(self, entry: FragmentEntry) -> None:
        """Take note that the manifest names an object."""
        self._orphans.named(entry)

    def discard_orphans(self) -> None:
        """Discard the objects that no entry names, once all of their offsets are archived or removed.

        Cost: nothing if there are none.
        """
        self._orphans.discard(self.table, self.stream, self.now)
