"""The rewrite of one fragment, in the identity encoding, into a file: chunk by chunk, each verified before.

Memory is that of the reads ahead (`compact.blocks`), of one chunk, and 21 bytes for each chunk; the fragment itself
waits on disk. Chunks that the selection cannot concern pass through as they are, without being held.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self
from zlib import crc32

from coldstream.archive.draft import CutFragment, FragmentDraft
from coldstream.compact.footer import Footer
from coldstream.compact.verifier import read_verified
from coldstream.erase.chunk import Doubts, ErasedChunk, erase_chunk
from coldstream.erase.proof import KeptContent
from coldstream.erase.selection import Selection
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType, iter_chunks
from coldstream.format.fragment import FragmentTrailer
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ChunkEnd
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore


@dataclass(frozen=True, slots=True)
class ErasedFragment:
    """A fragment without the bytes of `messages` messages; `cut` is its file, in the identity encoding.

    `offsets_sha256` is the digest of their offsets, each as a u64. `touched` has a byte for each chunk, 1 if it was
    rewritten. `kept` is the digest of all that stays (`proof.KeptContent`). A context manager that frees the disk.
    """

    cut: CutFragment
    messages: int
    offsets_sha256: bytes
    touched: bytes
    kept: bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut.body.close()


def erase_fragment(
    objects: ObjectStore,
    entry: FragmentEntry,
    selection: Selection,
    doubts: Doubts,
    *,
    spool_dir: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ErasedFragment | None:
    """Read a fragment and write it to a file without the messages that a selection takes; None if there are none left.

    The old object is read to its end and proven to be what the manifest says, whatever is taken. Cost: a GET each 4 MiB
    of chunks. Raises as `read_verified` and `erase_chunk`, and UnavailableError if the disk is full.
    """
    rewrite = _Rewrite(entry, selection, doubts, spool_dir)
    try:
        with closing(read_verified(objects, Group((entry,)), should_stop)) as events:
            for event in events:
                match event:
                    case ChunkBegin(header, _):
                        rewrite.begin(header)
                    case ChunkBytes(view):
                        rewrite.take(view)
                    case ChunkEnd():
                        rewrite.end(event)
                    case Footer(trailer):
                        return rewrite.finish(trailer)
        raise AssertionError("a verified fragment ends with its footer")
    except BaseException:
        rewrite.discard()
        raise


class _Rewrite:
    """A fragment on its way from one object to a file."""

    def __init__(self, entry: FragmentEntry, selection: Selection, doubts: Doubts, spool_dir: Path | None) -> None:
        self._source = entry.key
        self._selection = selection
        self._doubts = doubts
        self._draft = FragmentDraft(
            entry.key,
            entry.segment_offset,
            sequence_number=0,  # that, and what follows, is in the old trailer, which is read last
            chunks_before=0,
            data_position=0,
            spool_dir=spool_dir,
        )
        self._held: bytearray | None = None
        self._kept = KeptContent()
        self._touched = bytearray()
        self._messages = 0
        self._offsets = sha256()

    def begin(self, header: ChunkHeader) -> None:
        next_offset = self._selection.next_offset
        is_concerned = (
            header.type is ChunkType.USER
            and self._selection.first_offset < header.next_offset
            and (next_offset is None or header.chunk_id < next_offset)
        )
        self._held = bytearray() if is_concerned else None

    def take(self, view: memoryview) -> None:
        if self._held is None:
            self._draft.write(view)
        else:
            self._held += view

    def end(self, event: ChunkEnd) -> None:
        if self._held is None:
            self._keep(event)
            return
        (chunk,) = iter_chunks(memoryview(self._held), source=self._source, position=event.position)
        erased = erase_chunk(chunk, self._selection, self._doubts, source=self._source)
        if erased is None:
            self._draft.write(memoryview(self._held))
            self._keep(event)
        else:
            self._replace(chunk, erased)

    def finish(self, trailer: FragmentTrailer) -> ErasedFragment | None:
        if not any(self._touched):
            self.discard()
            return None
        return ErasedFragment(
            self._draft.finish(trailer),
            self._messages,
            self._offsets.digest(),
            bytes(self._touched),
            self._kept.digest,
        )

    def discard(self) -> None:
        self._draft.discard()

    def _keep(self, event: ChunkEnd) -> None:
        self._draft.add(event.header, event.crc32)
        self._kept.add_whole(event.header, event.crc32)
        self._touched.append(0)

    def _replace(self, chunk: Chunk, erased: ErasedChunk) -> None:
        chunk_crc32 = 0
        for piece in erased.pieces:
            self._draft.write(piece)
            chunk_crc32 = crc32(piece, chunk_crc32)
        self._draft.add(erased.header, chunk_crc32)
        self._kept.add_without(chunk, frozenset(erased.offsets), source=self._source)
        self._touched.append(1)
        self._messages += len(erased.offsets)
        self._offsets.update(b"".join(offset.to_bytes(8) for offset in erased.offsets))


def erased_entry(entry: FragmentEntry, fragment: ErasedFragment, key: str, generation: int) -> FragmentEntry:
    """Return the entry of the rewritten fragment at a key, in the identity encoding, in the place of `entry`."""
    return replace(
        fragment.cut.entry_at(key, generation),
        first_epoch=entry.first_epoch,  # None in entries of earlier releases, and stays so
        prior_offset=entry.prior_offset,
        prior_timestamp=entry.prior_timestamp,
        erased=True,
    )
