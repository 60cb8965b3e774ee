"""The objects of an upload that no entry names: of a stream deleted meanwhile, or of offsets that others archived.

An upload that fails is repeated, and finds its objects at their keys. Once it has ended, all of its offsets are
archived or removed, so that nobody can commit what is left over.
"""

from __future__ import annotations

from collections.abc import Callable

from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.store.discard import discard
from coldstream.store.ports import ManifestTable
from coldstream.units import TimestampMs


class Orphans:
    """Remembers the objects that one upload wrote or met, until an entry names them. Its threads share it."""

    def __init__(self) -> None:
        self._left: dict[str, FragmentEntry] = {}

    def add(self, entry: FragmentEntry) -> None:
        """Remember the object of an entry that is not committed yet."""
        self._left[entry.key] = entry

    def named(self, entry: FragmentEntry) -> None:
        """Forget an object: the manifest names it."""
        self._left.pop(entry.key, None)

    def discard(self, table: ManifestTable, stream: StreamId, now: Callable[[], TimestampMs]) -> None:
        """Discard what is left, as `store.discard` does. Cost: nothing if nothing is left."""
        if self._left:
            discard(table, stream.incarnation, tuple(self._left.values()), now)
            self._left.clear()
