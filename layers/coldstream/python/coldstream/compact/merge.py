"""Merge identity fragments without moving their chunks: S3 itself copies them, as parts of the merged object.

Only what S3 does not take as a part of its own passes through here (merge_plan): the footers, which become one, and
fragments under 5 MiB. The CRC-32 of the merged object follows from those that the manifest has of its fragments, and S3
refuses to complete an object with any other. So S3 has checked every byte, though none of the chunks was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from zlib import crc32

from coldstream.compact.footer import Footer, footer_range, join_footers
from coldstream.compact.merge_plan import PartPlan, Piece, plan_parts
from coldstream.compact.merged_object import MergedObject
from coldstream.compact.part_upload import PartUpload
from coldstream.errors import BadLengthError, StoppedError
from coldstream.flow.window import map_ahead
from coldstream.format.checksum import combine_crc32, crc32_after, crc32_before
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore, RangeRead, UploadedPart
from coldstream.units import ByteRange

READS_AT_ONCE = 6


def merge(
    objects: ObjectStore,
    key: str,
    group: Group,
    *,
    note: str,
    on_bytes: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> MergedObject:
    """Write the merged fragment to `key`, with the `note` that is to be its metadata.

    Memory: all indexes, 20 bytes a chunk, and three parts of under 10 MiB. Cost: a GET a fragment, two for a large one
    that ends or begins a part; a COPY or a PUT a part. Raises ObjectExistsError if the key is taken,
    ObjectNotFoundError, ConflictError if an object is replaced while this runs, CorruptionError (BadCrcError of `key`
    if the chunks are not what the manifest says), StoppedError.
    """
    plan = list(plan_parts(group))
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read") as pool:
        fragments = _FragmentReader(objects, group, should_stop)

        # Called in the threads of the upload. Reads have a pool of their own: in one pool, threads that wait for
        # reads could take up all places, and no read would ever begin.
        def read_pieces(part: PartPlan) -> bytes:
            return b"".join(map_ahead(pool, fragments.read, part.pieces, max_calls=READS_AT_ONCE))

        # Footers first: a copy is conditioned on the ETag under which the footer was read and checked.
        read_whole = {piece.key for part in plan for piece in part.pieces if piece.is_whole}
        others = (entry for entry in group.entries if entry.key not in read_whole)
        for _ in map_ahead(pool, fragments.read_footer, others, max_calls=READS_AT_ONCE):
            pass
        with PartUpload(objects, key, on_bytes, note=note) as upload:

            def send(part: PartPlan, number: int) -> UploadedPart:
                if should_stop():
                    raise StoppedError(f"stopped before {key} was complete")
                if part.is_copied:
                    (piece,) = part.pieces
                    return upload.copy(number, piece.key, piece.byte_range, if_match=fragments.etag(piece.key))
                return upload.put(number, read_pieces(part))

            for part in plan[:-1]:
                upload.add(partial(send, part))
            # The last part holds the new footer, made of all the others, some of which come with the parts.
            upload.settle()
            rest = read_pieces(plan[-1])
            footer = join_footers(fragments.footers(), group)
            upload.add(lambda number: upload.put(number, rest + footer))
            checksum = _merged_crc32(group, fragments.footers(), footer)
            upload.complete(checksum)
    gathered_bytes = sum(part.size_bytes for part in plan if not part.is_copied)
    return MergedObject(
        object_bytes=group.identity_bytes,
        crc32=checksum,
        read_bytes=gathered_bytes + sum(old.size_bytes for old in fragments.footers()),
        sent_bytes=gathered_bytes + len(footer),
        copied_bytes=sum(part.size_bytes for part in plan if part.is_copied),
    )


class _FragmentReader:
    """Reads pieces of a group's fragments, and keeps their footers, each compared with the manifest.

    Threads share it without a lock: each key is written once, by the one read that brings its footer.
    """

    def __init__(self, objects: ObjectStore, group: Group, should_stop: Callable[[], bool]) -> None:
        self._objects = objects
        self._should_stop = should_stop
        self._entries = {entry.key: entry for entry in group.entries}
        shifts = accumulate((entry.data_bytes for entry in group.entries), initial=0)
        self._shifts = dict(zip(self._entries, shifts, strict=False))
        self._footers: dict[str, Footer] = {}
        self._etags: dict[str, str] = {}

    def read_footer(self, entry: FragmentEntry) -> None:
        """Read a footer alone."""
        found = self._get(entry, footer_range(entry), None)
        self._etags[entry.key] = found.etag
        self._keep_footer(entry, found.data)

    def read(self, piece: Piece) -> bytes:
        """Read a piece, and with all chunks of a fragment its footer, too."""
        entry = self._entries[piece.key]
        if not piece.is_whole:
            return self._get(entry, piece.byte_range, self.etag(piece.key)).data
        found = self._get(entry, ByteRange(piece.byte_range.start, entry.object_bytes), None)
        self._keep_footer(entry, found.data[len(piece.byte_range) :])
        return found.data[: len(piece.byte_range)]

    def etag(self, key: str) -> str:
        """Return the ETag of the object of which `read_footer` read the footer."""
        return self._etags[key]

    def footers(self) -> list[Footer]:
        """Return all footers, in order, once all have been read."""
        return [self._footers[key] for key in self._entries]

    def _keep_footer(self, entry: FragmentEntry, data: bytes) -> None:
        self._footers[entry.key] = Footer.from_bytes(data, entry, self._shifts[entry.key])

    def _get(self, entry: FragmentEntry, byte_range: ByteRange, etag: str | None) -> RangeRead:
        if self._should_stop():
            raise StoppedError(f"stopped before {entry.key} was read")
        found = self._objects.get_range(entry.key, byte_range, if_match=etag)
        if found.object_bytes != entry.object_bytes:
            expected = entry.object_bytes
            raise BadLengthError(entry.key, 0, "size of the object", expected=expected, found=found.object_bytes)
        return found


def _merged_crc32(group: Group, footers: Sequence[Footer], footer: bytes) -> int:
    """Combine the CRC-32s of the chunks, each taken out of its fragment's, with those of one header and the footer."""
    header_crc32 = merged = crc32(SEGMENT_HEADER)
    for entry, old in zip(group.entries, footers, strict=True):
        header_and_data = crc32_before(entry.crc32, old.crc32, old.size_bytes)
        merged = combine_crc32(merged, crc32_after(header_and_data, header_crc32, entry.data_bytes), entry.data_bytes)
    return crc32(footer, merged)
