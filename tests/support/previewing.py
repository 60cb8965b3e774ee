"""An archive in memory of several streams, to preview jobs on and to ask the API about."""

from __future__ import annotations

from dataclasses import replace

from coldstream.manifest.entry import FragmentEntry, StorageClass
from coldstream.manifest.stream import Incarnation, StreamId, new_stream
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.support.archive import ChunkArchive, steady

BEGAN = 1_763_700_000_000
HOUR_MS = 3_600_000


class SeveralStreams:
    """Streams of fragments of ten messages each, one an hour from BEGAN on."""

    def __init__(self) -> None:
        self.table = MemoryTable()
        self.objects = MemoryObjects()
        self._made = 0

    def add(
        self,
        name: str,
        fragments: int,
        *,
        vhost: str = "/",
        without: tuple[int, ...] = (),
        cold: tuple[int, ...] = (),
    ) -> StreamId:
        """Archive a stream, `without` some of its fragments, and `cold` ones in GLACIER."""
        self._made += 1
        stream = new_stream(vhost, name, BEGAN * 1_000_000 + self._made)
        self.add_as(stream, fragments, without, cold)
        return stream

    def add_as(
        self, stream: StreamId, fragments: int, without: tuple[int, ...] = (), cold: tuple[int, ...] = ()
    ) -> None:
        """Archive a stream of this incarnation."""
        archive = ChunkArchive(stream, objects=self.objects)
        archive.table = self.table
        for number in range(fragments):
            if number not in without:
                # Two chunks: the fragment lasts for half an hour.
                at = BEGAN + number * HOUR_MS
                entry = archive.put(number * 10, steady(5, at, at + HOUR_MS // 2))
                archive.commit(self._cooled(stream.incarnation, entry) if number in cold else entry)

    def _cooled(self, incarnation: Incarnation, entry: FragmentEntry) -> FragmentEntry:
        info = self.objects.info(entry.key)
        assert info is not None
        key = Keys().fragment(incarnation, entry.first_offset, 1)
        self.objects.copy_in_class(entry.key, key, StorageClass.GLACIER, if_match=info.etag)
        self.objects.delete(entry.key)
        return replace(entry, key=key, generation=1, storage_class=StorageClass.GLACIER)


def at_hour(number: float) -> TimestampMs:
    """Return when the fragment of that number was written."""
    return TimestampMs(round(BEGAN + number * HOUR_MS))
