"""The entry of a fragment, made from its object alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

from coldstream.errors import BadSequenceError, ObjectNotFoundError
from coldstream.format.checksum import crc32_after, crc32_before
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import Encoding, FragmentEntry, StorageClass
from coldstream.manifest.frames import Frames
from coldstream.manifest.note import EntryNote
from coldstream.rebuild.footer import ObjectFooter, read_footer
from coldstream.rebuild.points import walk_index
from coldstream.rebuild.scan import scan_crc32, scan_note
from coldstream.store.ports import ListedObject, ObjectStore
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class FoundFragment:
    """A fragment's object, and the entry that it would have, without links.

    `chunks_before` counts the chunks of its segment before it. If `has_note` is false, the object says nothing of where
    its segment begins, and the entry's `segment_offset` is a guess.
    """

    entry: FragmentEntry
    chunks_before: int
    last_modified: TimestampMs
    has_note: bool
    is_remade: bool = False
    """Whether it was made from earlier objects: merged, compressed, erased, or moved to another storage class."""

    def after(self, before: FoundFragment | None) -> FoundFragment:
        """Return the fragment with the segment of the one before it, if it is known to be the next of that segment."""
        if self.has_note or before is None or before.entry.next_offset != self.entry.first_offset:
            return self
        if self.chunks_before != before.chunks_before + before.entry.chunks:
            return self
        return replace(self, entry=replace(self.entry, segment_offset=before.entry.segment_offset))


def read_fragment(objects: ObjectStore, listed: ListedObject, first_offset: Offset, generation: int) -> FoundFragment:
    """Make the entry of an object, whose key says `first_offset` and `generation`.

    Cost: a HEAD, a GET, and one or two more if the footer has more than 64 KiB. If the object has no note in its
    metadata, all of it is read (`scan`). Memory: its index. Raises CorruptionError of the kind that fits,
    ObjectNotFoundError or ReplacedError if the object has gone, NotRestoredError if it has to be restored first.
    """
    info = objects.info(listed.key)
    if info is None:
        raise ObjectNotFoundError(listed.key)
    footer = read_footer(objects, replace(listed, etag=info.etag, size_bytes=info.size_bytes))
    trailer = footer.trailer
    if trailer.first_offset != first_offset:
        raise BadSequenceError(
            listed.key, 0, "first offset of the fragment at this key", expected=first_offset, found=trailer.first_offset
        )
    has_note = info.note is not None
    if info.note is None:
        note = scan_note(objects, listed, footer, trailer.first_offset)
    else:
        note = EntryNote.from_text(info.note, source=listed.key)
    walk = walk_index(footer, source=listed.key, ordinals=note.points)
    object_crc32 = scan_crc32(objects, listed) if info.crc32 is None else info.crc32
    entry = FragmentEntry(
        first_offset=trailer.first_offset,
        next_offset=trailer.next_offset,
        first_timestamp=trailer.first_timestamp,
        last_timestamp=walk.last_timestamp,
        greatest_timestamp=walk.greatest_timestamp,
        epoch=note.epoch,
        chunks=trailer.chunks,
        records=trailer.next_offset - trailer.first_offset,
        messages=note.messages,
        data_bytes=trailer.data_bytes,
        object_bytes=info.size_bytes,
        key=listed.key,
        crc32=object_crc32,
        sparse=walk.sparse,
        last_user_chunk=note.last_user_chunk,
        segment_offset=note.segment_offset,
        encoding=footer.encoding,
        frames=None if footer.frame_positions is None else Frames(footer.frame_positions),
        generation=generation,
        first_epoch=note.first_epoch,
        data_crc32=_data_crc32(footer, object_crc32, note),
        erased=note.erased,
        storage_class=_storage_class(info.storage_class),
    )
    is_compacted = note.points is not None or entry.encoding is not Encoding.IDENTITY
    # Without a note, a merged identity fragment looks like one that was put again.
    is_remade = is_compacted or entry.erased or entry.storage_class is not None or (generation > 0 and not has_note)
    return FoundFragment(entry, trailer.chunks_before, listed.last_modified, has_note, is_remade)


def _data_crc32(footer: ObjectFooter, object_crc32: int, note: EntryNote) -> int | None:
    """Return the CRC-32 of the chunks: of an identity fragment it follows from the object's, whatever the note says.

    The object is the header, the chunks and the footer. The first and the last are known, so the chunks' can be taken
    out of the whole.
    """
    if footer.encoding is not Encoding.IDENTITY:
        return note.data_crc32
    header_and_data = crc32_before(object_crc32, footer.crc32, footer.size_bytes)
    return crc32_after(header_and_data, crc32(SEGMENT_HEADER), footer.trailer.data_bytes)


def _storage_class(name: str | None) -> StorageClass | None:
    """Return what an entry tells of a class: one that it does not know, as REDUCED_REDUNDANCY, is read at once."""
    return StorageClass(name) if name in set(StorageClass) else None
