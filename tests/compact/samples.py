"""Groups of fragments of any shape, in memory; what each test compacts."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.manifest.sparse import SparseIndex
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ObjectStore
from tests.support.archive import STREAM, ChunkArchive, Spec
from tests.support.compaction import identity_of, joined, seekable

KEYS = Keys()
INCARNATION = STREAM.incarnation
CHUNK_OVERHEAD_BYTES = 52
"""Of a chunk with one message: the headers of both."""


class Messages(ChunkArchive):
    """An archive of the messages given, one a chunk."""

    def __init__(self, messages: Sequence[bytes], sparse_bytes: int) -> None:
        super().__init__(sparse_bytes=sparse_bytes)
        self._messages = messages

    def message(self, offset: int) -> bytes:
        return self._messages[offset]


class Fragments:
    """Fragments in memory, neighbours all, of chunks of one message each; times run back now and then."""

    def __init__(self, *fragments: Sequence[bytes], sparse_bytes: int = 1 << 20) -> None:
        archive = Messages([message for fragment in fragments for message in fragment], sparse_bytes)
        rng = random.Random(1)
        entries = []
        first_offset = 0
        for fragment in fragments:
            entries.append(archive.put(first_offset, [Spec(1, rng.randrange(100)) for _ in fragment]))
            first_offset += len(fragment)
        self.objects = archive.objects
        self.group = Group(tuple(entries))

    @property
    def identity(self) -> bytes:
        """The merged fragment in the identity encoding, put together by other code."""
        return joined([identity_of(self.objects, entry) for entry in self.group.entries])

    def compress(self, number: int) -> None:
        """Put an entry's object in the encoding `zstd-seekable`."""
        entry = self.group.entries[number]
        data, frames = seekable(self.objects.objects[entry.key], entry.sparse, entry.data_bytes)
        self.objects.objects[entry.key] = data
        changed = replace(
            entry,
            encoding=Encoding.ZSTD_SEEKABLE,
            object_bytes=len(data),
            crc32=crc32(data),
            frames=frames,
        )
        self._replace(number, changed)

    def change(self, number: int, **fields: int) -> None:
        """Have the manifest say something else of an entry: so much is added to these fields."""
        entry = self.group.entries[number]
        self._replace(number, replace(entry, **{name: getattr(entry, name) + more for name, more in fields.items()}))

    def put_bytes(self, number: int, data: bytes) -> None:
        """Put other bytes at an entry's key, and have the manifest know their size and CRC-32."""
        entry = self.group.entries[number]
        self.objects.objects[entry.key] = data
        self._replace(number, replace(entry, object_bytes=len(data), crc32=crc32(data)))

    def change_point(self, number: int, at: int, **fields: int) -> None:
        """Have the manifest say something else of a point of an entry: so much is added to these fields."""
        entry = self.group.entries[number]
        points = list(entry.sparse.points)
        points[at] = points[at]._replace(**{name: getattr(points[at], name) + more for name, more in fields.items()})
        self._replace(number, replace(entry, sparse=SparseIndex(tuple(points))))

    def _replace(self, number: int, entry: FragmentEntry) -> None:
        self.group = Group((*self.group.entries[:number], entry, *self.group.entries[number + 1 :]))

    def put_into(self, objects: ObjectStore) -> None:
        """Store the objects somewhere else, too."""
        for key, data in self.objects.objects.items():
            objects.put_new(key, io.BytesIO(data), size_bytes=len(data), crc32=crc32(data))


def of_sizes(*data_bytes: int) -> Fragments:
    """Make fragments of one chunk each, of these sizes."""
    return Fragments(*([bytes(size - CHUNK_OVERHEAD_BYTES)] for size in data_bytes))


def with_points(count: int, chunk_bytes: int = 600_000) -> Fragments:
    """Make `count` fragments of a few chunks each, so large that the merged one has several points."""
    rng = random.Random(5)
    return Fragments(*([_half_random(rng, chunk_bytes + rng.randrange(9999)) for _ in range(3)] for _ in range(count)))


def _half_random(rng: random.Random, size_bytes: int) -> bytes:
    return rng.randbytes(size_bytes // 2) + bytes(size_bytes - size_bytes // 2)


def small() -> Fragments:
    """Make three fragments of a few hundred bytes, with several points each."""
    rng = random.Random(7)
    messages = [rng.randbytes(rng.randrange(0, 20)) for _ in range(6)]
    return Fragments(messages[:2], messages[2:5], messages[5:], sparse_bytes=60)


class Corruptible(MemoryObjects):
    """Objects of which a byte changes."""

    def corrupt(self, key: str, position: int) -> None:
        data = bytearray(self.objects[key])
        data[position] ^= 1 << position % 8
        self.objects[key] = bytes(data)
