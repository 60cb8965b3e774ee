"""What lies beneath the messages of a stream: its fragments, the chunks of one, and the entries of a chunk, as rows."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.browse.cost import ReadCost
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkType
from coldstream.manifest.entry import Encoding, Gap, StorageClass
from coldstream.manifest.stream import StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class FragmentRow:
    """One fragment: its content, and its object.

    `gap_before` counts the offsets that are missing right before it. `cost_usd` is for a month of storage.
    """

    first_offset: Offset
    next_offset: Offset
    first_time: TimestampMs
    last_time: TimestampMs
    epoch: Epoch
    chunks: int
    records: int
    messages: int
    data_bytes: int
    stored_bytes: int
    encoding: Encoding
    storage_class: StorageClass | None
    key: str
    generation: int
    is_erased: bool
    gap_before: int
    cost_usd: float

    @property
    def must_be_restored(self) -> bool:
        """Whether a GET of the object fails until a copy of it was restored."""
        return self.storage_class is not None and self.storage_class.must_be_restored


@dataclass(frozen=True, slots=True)
class FragmentListing:
    """Fragments in the order of their offsets. `next` and `previous` ask for more, None if there are no more."""

    stream: StreamId
    rows: tuple[FragmentRow, ...]
    next: Offset | None
    previous: Offset | None
    cost: ReadCost


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One chunk, by its header. `position` is its byte in the identity encoding of the fragment; `crc` is verified."""

    chunk_id: ChunkId
    next_offset: Offset
    type: ChunkType
    entries: int
    records: int
    timestamp: TimestampMs
    epoch: Epoch
    crc: int
    position: int
    data_bytes: int
    trailer_bytes: int
    bloom_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole chunk, header included."""
        return self.data_bytes + self.trailer_bytes + self.bloom_bytes + CHUNK_HEADER_BYTES

    @property
    def type_name(self) -> str:
        """The type in words: `user`, `tracking delta` or `tracking snapshot`."""
        return self.type.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class ChunkListing:
    """The chunks of about a MiB of one fragment, which `fragment` is; or a gap, where there are none.

    `next` and `previous` are offsets to ask for, None at the ends of the log.
    """

    stream: StreamId
    fragment: FragmentRow | None
    rows: tuple[ChunkRow, ...]
    gap: Gap | None
    next: Offset | None
    previous: Offset | None
    cost: ReadCost


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry of a chunk: a message on its own, or a sub-batch.

    `stored_bytes` are those of the message, or of the packed data. Of a sub-batch, `compression` is its name, and
    `uncompressed_bytes` what its publisher says; both are None for a message on its own.
    """

    number: int
    first_offset: Offset
    records: int
    stored_bytes: int
    compression: str | None = None
    uncompressed_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class EntryListing:
    """Some entries of one chunk, from number `first` on; `total` counts all of the chunk.

    `problem` says why the rest cannot be read, None if all can.
    """

    stream: StreamId
    fragment: FragmentRow
    chunk: ChunkRow
    rows: tuple[EntryRow, ...]
    first: int
    total: int
    cost: ReadCost
    problem: str | None = None
