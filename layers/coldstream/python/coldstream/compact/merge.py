"""Merge identity fragments without moving their chunks: S3 itself copies them, as parts of the merged object.

Only what S3 takes for no part of its own passes through here: footers, which are read and put together, and runs of
small fragments, each read at once, with as much of a large neighbour as makes 5 MiB. The CRC-32 of the merged object
follows from those that the manifest has of its fragments; S3 refuses to complete an object whose bytes are not of it.
So each byte of the fragments is accounted for, by S3, though none of them was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from zlib import crc32

from coldstream.compact.footer import Footer, footer_range, join_footers
from coldstream.compact.made import Made
from coldstream.compact.parts import MIN_PART_BYTES, PartUpload
from coldstream.errors import BadLengthError, StoppedError
from coldstream.format.checksum import combine_crc32, crc32_after, crc32_before
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
    is_whole: bool = False
    """All chunks of the fragment: its footer, which comes right after them, is read with them."""


@dataclass(frozen=True, slots=True)
class PartPlan:
    """What a part is made of. One that is not copied is gathered here; the last one ends with the footer."""

    pieces: tuple[Piece, ...]
    is_copied: bool

    @property
    def size_bytes(self) -> int:
        """Of all pieces."""
        return sum(len(piece.byte_range) for piece in self.pieces)


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
            gathered.append(Piece(entry.key, ByteRange(start, border), is_whole=border == end))
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


@dataclass(frozen=True, slots=True)
class Requests:
    """What making an object takes: requests of S3 that cost what a PUT does, and those that cost what a GET does."""

    puts: int
    gets: int


def requests_of(group: Group) -> Requests:
    """Count what merging a group takes, with the look whether its key is free."""
    parts = pieces = whole = 0
    for part in plan_parts(group):
        parts += 1
        if not part.is_copied:
            pieces += len(part.pieces)
            whole += sum(piece.is_whole for piece in part.pieces)
    return Requests(puts=parts + 2, gets=1 + pieces + len(group.entries) - whole)


def merge(
    objects: ObjectStore,
    key: str,
    group: Group,
    *,
    on_bytes: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> Made:
    """Write the merged fragment to `key`. Memory: all indexes, 20 bytes a chunk, and three parts of under 10 MiB.

    Cost: a GET a fragment, two of a large one that ends or begins a part; a COPY or a PUT a part. Raises
    ObjectExistsError when the key is taken, ObjectNotFoundError, ConflictError when an object is replaced meanwhile,
    CorruptionError (BadCrcError, of `key`, where the chunks are not what the manifest says), StoppedError.
    """
    plan = list(plan_parts(group))
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read") as pool:
        sources = _Sources(objects, group, should_stop)
        whole = {piece.key for part in plan for piece in part.pieces if piece.is_whole and not part.is_copied}
        for _ in pool.map(sources.read_footer, [entry for entry in group.entries if entry.key not in whole]):
            pass
        with PartUpload(objects, key, on_bytes) as upload:

            def send(part: PartPlan, number: int) -> UploadedPart:
                if should_stop():
                    raise StoppedError(f"{key} is not written")
                if part.is_copied:
                    (piece,) = part.pieces
                    return upload.copy(number, piece.key, piece.byte_range, if_match=sources.etag(piece.key))
                return upload.put(number, b"".join(pool.map(sources.read, part.pieces)))

            for part in plan[:-1]:
                upload.add(partial(send, part))
            upload.settle()
            rest = b"".join(pool.map(sources.read, plan[-1].pieces))
            footer = join_footers(sources.footers(), group)
            upload.add(lambda number: upload.put(number, rest + footer))
            checksum = _merged_crc32(group, sources.footers(), footer)
            upload.complete(checksum)
    gathered_bytes = sum(part.size_bytes for part in plan if not part.is_copied)
    return Made(
        object_bytes=group.identity_bytes,
        crc32=checksum,
        read_bytes=gathered_bytes + sum(source.size_bytes for source in sources.footers()),
        sent_bytes=gathered_bytes + len(footer),
        copied_bytes=sum(part.size_bytes for part in plan if part.is_copied),
    )


class _Sources:
    """The fragments of a group, as they are read; each footer is held to the manifest, and kept."""

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
        self._take_footer(entry, found.data)

    def read(self, piece: Piece) -> bytes:
        """Read a piece; with all chunks of a fragment, its footer, too."""
        entry = self._entries[piece.key]
        if not piece.is_whole:
            return self._get(entry, piece.byte_range, self.etag(piece.key)).data
        found = self._get(entry, ByteRange(piece.byte_range.start, entry.object_bytes), None)
        self._take_footer(entry, found.data[len(piece.byte_range) :])
        return found.data[: len(piece.byte_range)]

    def etag(self, key: str) -> str:
        """Return which version of an object the footer is of, where that was read alone."""
        return self._etags[key]

    def footers(self) -> list[Footer]:
        """Return all footers, in order, once all are read."""
        return [self._footers[key] for key in self._entries]

    def _take_footer(self, entry: FragmentEntry, data: bytes) -> None:
        self._footers[entry.key] = Footer.from_bytes(data, entry, self._shifts[entry.key])

    def _get(self, entry: FragmentEntry, byte_range: ByteRange, etag: str | None) -> RangeRead:
        if self._should_stop():
            raise StoppedError(f"{entry.key} is not read")
        found = self._objects.get_range(entry.key, byte_range, if_match=etag)
        if found.object_bytes != entry.object_bytes:
            expected = entry.object_bytes
            raise BadLengthError(entry.key, 0, "size of the object", expected=expected, found=found.object_bytes)
        return found


def _merged_crc32(group: Group, footers: Sequence[Footer], footer: bytes) -> int:
    header_crc32 = merged = crc32(SEGMENT_HEADER)
    for entry, old in zip(group.entries, footers, strict=True):
        header_and_data = crc32_before(entry.crc32, old.crc32, old.size_bytes)
        merged = combine_crc32(merged, crc32_after(header_and_data, header_crc32, entry.data_bytes), entry.data_bytes)
    return crc32(footer, merged)
