"""What was erased, by the bytes of the archive, and the forms that a chunk may have: it never comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkType, iter_chunks
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.format.writer import make_chunk
from coldstream.manifest.entry import ErasureState, FragmentEntry
from coldstream.manifest.state import ManifestState
from coldstream.store.memory.objects import MemoryObjects
from tests.explore.base import URL_EXPIRY_S
from tests.simulation.cluster import ReplicatedStream, Written
from tests.support.compaction import identity_of

LENGTH_BYTES = 4


class ErasedMessages:
    """The offsets that are erased by now, and the bytes that each chunk with any has had since.

    `stream` has what was confirmed. `erased_at` says when a chunk lost messages last, by the loop's clock.
    """

    def __init__(self, stream: ReplicatedStream, objects: MemoryObjects) -> None:
        self.offsets: set[int] = set()
        self.forms: dict[int, list[bytes]] = {}
        self.erased_at: dict[int, float] = {}
        self._stream = stream
        self._objects = objects

    def changed(self, before: ManifestState, after: ManifestState) -> None:
        """Hold a change: no new object has what was erased, and each chunk of it is as it should be."""
        if not after.erasures:
            return
        known = {one.key for one in before.entries.values()}
        asked = {at for one in after.erasures.values() for at in range(one.first_offset, one.next_offset)}
        for entry in after.entries.values():
            if entry.key not in known and not asked.isdisjoint(range(entry.first_offset, entry.next_offset)):
                self._look(entry, asked)
        for one in after.erasures.values():
            earlier = before.erasures.get(one.id)
            if one.state is ErasureState.DONE and (earlier is None or earlier.state is not ErasureState.DONE):
                left = {
                    at
                    for at in range(one.first_offset, one.next_offset)
                    if at not in self.offsets
                    and any(e.first_offset <= at < e.next_offset for e in after.entries.values())
                }
                left -= {at for at in left if self._is_tracking(at)}
                assert not left, f"the erasure {one.id} is done, and {sorted(left)} are left"

    def problem_of(self, confirmed: Written, given: bytes) -> str:
        """Say what is wrong with the bytes of a chunk, header and data, that a reader is given; "" if nothing is."""
        chunk_id = confirmed.header.chunk_id
        if given == confirmed.raw:
            at = self.erased_at.get(chunk_id)
            if at is None or time.monotonic() < at + URL_EXPIRY_S:
                return ""
            has = any(one.kept_from <= chunk_id for one in self._stream.replicas)
            return "" if has else "with messages that were erased"
        return "" if given in self.forms.get(chunk_id, ()) else "with other bytes"

    def form_of(self, confirmed: Written) -> bytes:
        """Return what the archive has to have of a chunk now."""
        return erased_form(confirmed, self.offsets)

    def check_bucket(self) -> None:
        """Hold the bucket: once all that was replaced is gone, no object has an erased message."""
        bodies = [(at, body) for chunk in self._chunks() for at, body in messages_of(chunk) if at in self.offsets]
        for key, data in self._objects.objects.items():
            for at, body in bodies:
                assert body not in data, f"{key} has the message at {at}, which was erased"

    def _chunks(self) -> Iterator[Written]:
        return (one for one in self._stream.log if one.header.chunk_id in self.forms)

    def _is_tracking(self, offset: int) -> bool:
        return any(
            one.header.chunk_id <= offset < one.header.next_offset and one.header.type is not ChunkType.USER
            for one in self._stream.log
        )

    def _look(self, entry: FragmentEntry, asked: set[int]) -> None:
        data = identity_of(self._objects, entry)
        body = data[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + entry.data_bytes]
        confirmed = {one.header.chunk_id: one for one in self._stream.log}
        for chunk in iter_chunks(body, source=entry.key, position=0):
            header = chunk.header
            offsets = asked.intersection(range(header.chunk_id, header.next_offset))
            if not offsets or header.type is not ChunkType.USER:
                continue
            raw = body[chunk.position : chunk.position + header.total_bytes]
            there = confirmed[header.chunk_id]
            gone = {at for at, message in messages_of(there) if at in offsets and message not in raw}
            back = self.offsets.intersection(offsets) - gone
            assert not back, f"{entry.key} has the messages {sorted(back)}, which were erased"
            assert entry.erased or not gone, f"{entry.key} lacks messages, and its entry does not say so"
            assert raw == erased_form(there, gone), f"{entry.key} has other bytes at {header.chunk_id}"
            if gone - self.offsets:
                self.offsets |= gone
                self.forms.setdefault(header.chunk_id, []).append(raw)
                self.erased_at[header.chunk_id] = time.monotonic()


def messages_of(chunk: Written) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a user chunk of the simulation, all in entries of their own, with their offsets."""
    at = CHUNK_HEADER_BYTES
    for offset in range(chunk.header.chunk_id, chunk.header.next_offset):
        size = int.from_bytes(chunk.raw[at : at + LENGTH_BYTES])
        at += LENGTH_BYTES
        yield offset, chunk.raw[at : at + size]
        at += size


def erased_form(chunk: Written, offsets: set[int] | Sequence[int]) -> bytes:
    """Return a chunk with these of its messages erased."""
    header = chunk.header
    if header.type is not ChunkType.USER or not any(header.chunk_id <= at < header.next_offset for at in offsets):
        return chunk.raw
    entries = [ERASED_MESSAGE if at in offsets else body for at, body in messages_of(chunk)]
    return make_chunk(entries, chunk_id=header.chunk_id, timestamp=header.timestamp, epoch=header.epoch)[1]
