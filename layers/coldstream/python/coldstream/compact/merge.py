"""Merge identity fragments without moving their chunks: S3 itself copies them, as parts of the merged object.

Only what S3 takes for no part of its own passes through here: footers, which are read and put together, and runs of
small fragments, with as much of a large neighbour as makes 5 MiB. The CRC-32 of the merged object follows from those
that the manifest has of its fragments; S3 refuses to complete an object whose bytes are not of it. So each byte of the
fragments is accounted for, by S3, though none of them was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from zlib import crc32

from awscrt.checksums import combine_crc32

from coldstream.compact.checksum import crc32_after, crc32_before
from coldstream.compact.footer import Footer, footer_range, join_footers
from coldstream.compact.made import Made
from coldstream.compact.parts import MIN_PART_BYTES, PartUpload
from coldstream.errors import BadLengthError, StoppedError
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore, RangeRead, UploadedPart
from coldstream.units import MIB, ByteRange

MAX_COPY_BYTES = 256 * MIB
"""Of one copied part: few requests, and each answered well within what the client waits. S3 takes 5 GiB."""

READS_AT_ONCE = 6


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a fragment's object."""

    key: str
    byte_range: ByteRange


@dataclass(frozen=True, slots=True)
class PartPlan:
    """What a part is made of. One that is not copied is gathered here; the last one ends with the footer."""

    pieces: tuple[Piece, ...]
    is_copied: bool

    @property
    def size_bytes(self) -> int:
        """Of all pieces."""
        return sum(len(piece.byte_range) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class _Source:
    """What was read of a fragment: its footer, and which version of its object that is of."""

    footer: Footer
    etag: str


def plan_parts(group: Group) -> Iterator[PartPlan]:
    """Plan the parts of the merged object, in order; the last one, to which the footer goes, is gathered.

    Every part before the last has 5 MiB at least; a copied one MAX_COPY_BYTES at most, a gathered one under 10 MiB.
    """
    gathered: list[Piece] = []
    gathered_bytes = 0
    start = 0
    for entry in group.entries:
        end = FRAGMENT_HEADER_BYTES + entry.data_bytes
        if gathered or end - start < MIN_PART_BYTES:
            missing = MIN_PART_BYTES - gathered_bytes
            border = start + missing if end - start - missing >= MIN_PART_BYTES else end
            gathered.append(Piece(entry.key, ByteRange(start, border)))
            gathered_bytes += border - start
            start = border
        if gathered_bytes >= MIN_PART_BYTES:
            yield PartPlan(tuple(gathered), is_copied=False)
            gathered, gathered_bytes = [], 0
        if start < end:
            copies = -(-(end - start) // MAX_COPY_BYTES)
            borders = [start + (end - start) * number // copies for number in range(copies + 1)]
            for number in range(copies):
                piece = Piece(entry.key, ByteRange(borders[number], borders[number + 1]))
                yield PartPlan((piece,), is_copied=True)
        start = FRAGMENT_HEADER_BYTES  # of the next ones: the merged fragment has one header
    yield PartPlan(tuple(gathered), is_copied=False)


def merge(
    objects: ObjectStore,
    key: str,
    group: Group,
    *,
    on_bytes: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> Made:
    """Write the merged fragment to `key`. Memory: all indexes, 20 bytes a chunk, and three parts of under 10 MiB.

    Cost: a GET a fragment, two of a small one; a COPY or a PUT a part. Raises ObjectExistsError when the key is taken,
    ObjectNotFoundError, ConflictError when an object is replaced meanwhile, CorruptionError (BadCrcError, of `key`,
    where the chunks are not what the manifest says), StoppedError.
    """
    plan = list(plan_parts(group))
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read") as pool:
        sources = _read_sources(pool, objects, group, should_stop)
        footer = join_footers([source.footer for source in sources.values()], group)
        checksum = _merged_crc32(group, sources, footer)

        def read(piece: Piece) -> bytes:
            return objects.get_range(piece.key, piece.byte_range, if_match=sources[piece.key].etag).data

        with PartUpload(objects, key, on_bytes) as upload:

            def send(part: PartPlan, behind: bytes, number: int) -> UploadedPart:
                if should_stop():
                    raise StoppedError(f"{key} is not written")
                if part.is_copied:
                    (piece,) = part.pieces
                    return upload.copy(number, piece.key, piece.byte_range, if_match=sources[piece.key].etag)
                return upload.put(number, b"".join((*pool.map(read, part.pieces), behind)))

            for part in plan[:-1]:
                upload.add(partial(send, part, b""))
            upload.add(partial(send, plan[-1], footer))
            upload.complete(checksum)
    gathered_bytes = sum(part.size_bytes for part in plan if not part.is_copied)
    return Made(
        object_bytes=group.identity_bytes,
        crc32=checksum,
        read_bytes=gathered_bytes + sum(source.footer.size_bytes for source in sources.values()),
        sent_bytes=gathered_bytes + len(footer),
        copied_bytes=sum(part.size_bytes for part in plan if part.is_copied),
    )


def _read_sources(
    pool: ThreadPoolExecutor, objects: ObjectStore, group: Group, should_stop: Callable[[], bool]
) -> dict[str, _Source]:
    """Read all footers; return them by key, in order."""

    def read(entry: FragmentEntry, shift: int) -> _Source:
        if should_stop():
            raise StoppedError(f"{entry.key} is not read")
        found = _read(objects, entry, footer_range(entry))
        return _Source(Footer.from_bytes(found.data, entry, shift), found.etag)

    shifts = accumulate((entry.data_bytes for entry in group.entries), initial=0)
    sources = pool.map(read, group.entries, shifts)
    return {entry.key: source for entry, source in zip(group.entries, sources, strict=True)}


def _read(objects: ObjectStore, entry: FragmentEntry, byte_range: ByteRange) -> RangeRead:
    found = objects.get_range(entry.key, byte_range)
    if found.object_bytes != entry.object_bytes:
        raise BadLengthError(entry.key, 0, "size of the object", expected=entry.object_bytes, found=found.object_bytes)
    return found


def _merged_crc32(group: Group, sources: Mapping[str, _Source], footer: bytes) -> int:
    header_crc32 = merged = crc32(SEGMENT_HEADER)
    for entry in group.entries:
        old = sources[entry.key].footer
        header_and_data = crc32_before(entry.crc32, old.crc32, old.size_bytes)
        merged = combine_crc32(merged, crc32_after(header_and_data, header_crc32, entry.data_bytes), entry.data_bytes)
    return crc32(footer, merged)
