"""The contents of a segment, an index or a fragment as items, verified.

An *item* is a dictionary that JSON can hold. Its `what` is "chunk", "message", "tracking" or "index record", and for
the last one, which sums up the file, "segment", "index" or "fragment". Messages and tracking records come after their
chunk. Memory is bounded by a chunk, and for a fragment by its index, too. A compressed fragment is decompressed into a
temporary file, because its trailer, which says where the index is, comes last.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from coldstream.errors import BadMagicError, BadSequenceError, CorruptionError
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import ChunkHeader, ChunkType, iter_chunks
from coldstream.format.fragment import (
    FRAGMENT_TRAILER_BYTES,
    FragmentIndexRecord,
    FragmentTrailer,
    iter_fragment_index,
)
from coldstream.format.index import INDEX_HEADER, iter_index
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ChunkEnd, SegmentScanner
from coldstream.format.seekable import SEEK_TABLE_FOOTER_BYTES, SeekTable, decompress_frames, seek_table_bytes
from coldstream.format.segment import first_offset_of
from coldstream.format.tracking import iter_tracking
from coldstream.manifest.entry import Encoding
from coldstream.units import MIB, Offset, format_timestamp

Item = dict[str, Any]

FRAGMENT_SUFFIX = ".fragment"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def file_items(path: Path, *, with_messages: bool = False) -> Iterator[Item]:
    """Yield the items of a file, up to the first damage. Raises CorruptionError, which names the byte."""
    source = path.name
    with path.open("rb") as file:
        start = file.read(len(INDEX_HEADER))
        file.seek(0)
        if start[:4] == INDEX_HEADER[:4]:
            yield from _index(file, source)
            return
        if start[:4] == ZSTD_MAGIC:
            yield from _compressed(file, source, with_messages=with_messages)
            return
        trailer = _trailer(file, source)
        if trailer is None:
            yield from _ChunkReader(source, first_offset_of(source), with_messages=with_messages).read(file, "segment")
        else:
            yield from _fragment(file, source, trailer, with_messages=with_messages)


def _compressed(file: BinaryIO, source: str, *, with_messages: bool) -> Iterator[Item]:
    """Decompress a fragment frame by frame, and yield its items. Positions are those in the decompressed fragment."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, size_bytes - SEEK_TABLE_FOOTER_BYTES))
    table_bytes = seek_table_bytes(file.read(), source=source, object_bytes=size_bytes)
    file.seek(size_bytes - table_bytes)
    table = SeekTable.from_bytes(file.read(), source=source, object_bytes=size_bytes)
    file.seek(0)
    with tempfile.TemporaryFile() as content:
        position = 0
        for frame in table.frames:
            compressed = file.read(frame.compressed_bytes)
            content.write(decompress_frames(compressed, frame.content_bytes, source=source, position=position))
            position += frame.compressed_bytes
        trailer = _trailer(content, source)
        if trailer is None:
            raise BadMagicError(source, 0, "what is compressed in this file is no fragment")
        for item in _fragment(content, source, trailer, with_messages=with_messages):
            if item["what"] == "fragment":
                item |= {"bytes": size_bytes, "encoding": Encoding.ZSTD_SEEKABLE}
                item |= {"identity_bytes": table.content_bytes, "frames": len(table.frames)}
            yield item


def _trailer(file: BinaryIO, source: str) -> FragmentTrailer | None:
    """Return a fragment's trailer, or None if the file is a segment: the two begin alike, and only the end tells."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, size_bytes - FRAGMENT_TRAILER_BYTES))
    end = file.read()
    file.seek(0)
    try:
        return FragmentTrailer.from_bytes(end, source=source, object_bytes=size_bytes)
    except CorruptionError:
        if source.endswith(FRAGMENT_SUFFIX):
            raise
        return None


def _index(file: BinaryIO, source: str) -> Iterator[Item]:
    records = 0
    for record in iter_index(file, source=source):
        records += 1
        yield {
            "what": "index record",
            "chunk_id": record.chunk_id,
            "type": _type_name(record.type),
            "timestamp": format_timestamp(record.timestamp),
            "epoch": record.epoch,
            "position": record.position,
        }
    yield {"what": "index", "file": source, "records": records, "bytes": os.fstat(file.fileno()).st_size}


def _fragment(file: BinaryIO, source: str, trailer: FragmentTrailer, *, with_messages: bool) -> Iterator[Item]:
    file.seek(trailer.index_range.start)
    # `read` runs here and not within the generator: the chunks below move the position of the same file.
    index = iter_fragment_index(file.read(len(trailer.index_range)), trailer, source=source)
    file.seek(0)
    chunks = _ChunkReader(source, trailer.first_offset, with_messages=with_messages, index=index)
    for item in chunks.read(file, "fragment", trailer.data_range.end):
        if item["what"] == "fragment":
            if (item["next_offset"], item["chunks"]) != (trailer.next_offset, trailer.chunks):
                raise BadSequenceError(
                    source,
                    trailer.object_bytes - FRAGMENT_TRAILER_BYTES,
                    "next offset and chunks in a fragment trailer",
                    expected=(item["next_offset"], item["chunks"]),
                    found=(trailer.next_offset, trailer.chunks),
                )
            item |= {
                "sequence_number": trailer.sequence_number,
                "chunks_before": trailer.chunks_before,
                "data_position": trailer.data_position,
                "data_bytes": trailer.data_bytes,
                "index_position": trailer.index_position,
                "index_bytes": trailer.index_bytes,
            }
        yield item


class _ChunkReader:
    """Reads the chunks of a file, and sums them up. `index`, if given, must have a record for each chunk."""

    def __init__(
        self,
        source: str,
        first_offset: Offset | None,
        *,
        with_messages: bool,
        index: Iterator[FragmentIndexRecord] | None = None,
    ) -> None:
        self._source = source
        self._scanner = SegmentScanner(source, first_offset=first_offset)
        self._with_messages = with_messages
        self._index = index
        self._first: ChunkHeader | None = None
        self._last: ChunkHeader | None = None
        self._chunks = 0
        self._records = 0
        self._messages = 0

    def read(self, file: BinaryIO, what: str, end: int | None = None) -> Iterator[Item]:
        """Yield the items of a file up to byte `end`, or to the end of the file."""
        # The size at this moment: a broker may append to the segment, and reading must end all the same.
        left = os.fstat(file.fileno()).st_size if end is None else end
        whole = bytearray()
        while block := file.read(min(left, MIB)):
            left -= len(block)
            for step in self._scanner.feed(block):
                match step:
                    case ChunkBegin():
                        whole.clear()
                    case ChunkBytes(view) if self._with_messages:
                        whole += view
                    case ChunkEnd(header, position, _):
                        yield self._chunk(header, position)
                        if self._with_messages:
                            # A copy: a bytearray that has views, as chunks are, cannot be cleared for the next chunk.
                            yield from self._contents(bytes(whole), position)
        self._scanner.close()
        yield self._summary(what, os.fstat(file.fileno()).st_size)

    def _chunk(self, header: ChunkHeader, position: int) -> Item:
        if self._index is not None:
            expected = FragmentIndexRecord(header.chunk_id, header.timestamp, position)
            found = next(self._index, None)
            if found != expected:
                raise BadSequenceError(
                    self._source, position, "index record of a chunk", expected=expected, found=found
                )
        self._first = self._first or header
        self._last = header
        self._chunks += 1
        self._records += header.records
        self._messages += header.records if header.type is ChunkType.USER else 0
        return {
            "what": "chunk",
            "position": position,
            "chunk_id": header.chunk_id,
            "next_offset": header.next_offset,
            "type": _type_name(header.type),
            "entries": header.entries,
            "records": header.records,
            "timestamp": format_timestamp(header.timestamp),
            "epoch": header.epoch,
            "crc32": f"{header.crc:08x}",
            "bloom_bytes": header.bloom_bytes,
            "data_bytes": header.data_bytes,
            "trailer_bytes": header.trailer_bytes,
        }

    def _contents(self, whole: bytes, position: int) -> Iterator[Item]:
        for chunk in iter_chunks(whole, source=self._source, position=position):
            for message in messages(chunk, source=self._source):
                yield {"what": "message", **message.to_dict()}
            for record in iter_tracking(chunk, source=self._source):
                yield {
                    "what": "tracking",
                    "type": record.type.name.lower(),
                    "id": record.id.decode(errors="backslashreplace"),
                    "value": record.value,
                }

    def _summary(self, what: str, size_bytes: int) -> Item:
        first, last = self._first, self._last
        return {
            "what": what,
            "file": self._source,
            "bytes": size_bytes,
            "chunks": self._chunks,
            "records": self._records,
            "messages": self._messages,
            "first_offset": None if first is None else first.chunk_id,
            "next_offset": None if last is None else last.next_offset,
            "first_timestamp": None if first is None else format_timestamp(first.timestamp),
            "last_timestamp": None if last is None else format_timestamp(last.timestamp),
        }


def _type_name(kind: ChunkType) -> str:
    return kind.name.lower().replace("_", " ")
