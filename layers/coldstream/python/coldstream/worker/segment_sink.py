"""The target of an export of segments: whole chunks, byte for byte, in the files that a broker would have.

    {destination}/{incarnation}/{first offset, 20 digits}.segment
    {destination}/{incarnation}/{first offset, 20 digits}.index

So `coldstream inspect` and `coldstream announce` read them, and whatever reads a broker's own. Chunks stay whole: the
first and the last one may hold messages before the first offset and after the last, and a window by time has every
chunk that may hold a message of it. A segment ends as a broker's does, at SEGMENT_BYTES or SEGMENT_CHUNKS, and before
each gap, as a segment has no hole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.index import INDEX_HEADER, IndexRecord
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES, file_name
from coldstream.format.writer import MAX_SEGMENT_BYTES, MAX_SEGMENT_CHUNKS
from coldstream.jobs.run import JobRun
from coldstream.manifest.entry import Gap
from coldstream.replay.read_ahead import Step, read_ahead
from coldstream.replay.window import TimeWindow
from coldstream.units import Offset
from coldstream.worker.load_cursor import StreamPosition
from coldstream.worker.load_sink import LoadPart, LoadStep
from coldstream.worker.segment_place import SegmentPlace, open_place
from coldstream.worker.tools import WorkerTools

SEGMENT_BYTES = MAX_SEGMENT_BYTES
SEGMENT_CHUNKS = MAX_SEGMENT_CHUNKS


@dataclass(slots=True)
class SegmentSink:
    """Files of segments below a destination."""

    tools: WorkerTools
    destination: str

    @property
    def label(self) -> str:
        """What people call it."""
        return f"segments in {self.destination!r}"

    def publisher(self, position: StreamPosition, window: TimeWindow | None) -> str:  # noqa: ARG002  the port's
        """Return nothing: names of files tell what is there."""
        return ""

    def prepare(self) -> None:
        """Check the destination."""
        open_place(self.destination)

    def load(self, run: JobRun, part: LoadPart) -> bool:
        """Write the segments that are left, and move on after each. A stop gives up the one that is being written."""
        place, request = open_place(self.destination), part.request
        start = max(request.start, part.position.done_to)
        with read_ahead(self.tools.table, self.tools.objects, request, start) as steps:
            pieces = _pieces(steps, part)
            piece = next(pieces, None)
            while piece is not None:
                segment = None
                with place.spool() as spool:
                    while piece is not None and (segment is None or segment.takes(piece)):
                        if run.should_stop():
                            return False
                        segment = segment or _SegmentFile(Path(spool), Offset(piece.header.chunk_id))
                        segment.append(piece)
                        piece = next(pieces, None)
                    assert segment is not None
                    segment.publish(place, part.position.stream.incarnation)
                # Only now: an attempt after a crash begins with the file that is not known to be there.
                part.on_step(LoadStep(segment.next_offset, segment.messages, segment.size_bytes))
        return True


def _pieces(steps: Iterator[Step], part: LoadPart) -> Iterator[Chunk]:
    """Yield the chunks, and take account of the gaps."""
    for step in steps:
        if isinstance(step, Gap):
            part.account.skip(step)
        else:
            yield from step[1]


@dataclass(slots=True)
class _SegmentFile:
    """A segment and its index while they are written."""

    directory: Path
    first_offset: Offset
    next_offset: Offset = field(init=False)
    size_bytes: int = SEGMENT_HEADER_BYTES
    chunks: int = 0
    messages: int = 0

    def __post_init__(self) -> None:
        self.next_offset = self.first_offset
        self._path("segment").write_bytes(SEGMENT_HEADER)
        self._path("index").write_bytes(INDEX_HEADER)

    def takes(self, chunk: Chunk) -> bool:
        """Tell whether a chunk comes into this segment: it follows, and there is room."""
        has_room = self.size_bytes < SEGMENT_BYTES and self.chunks < SEGMENT_CHUNKS
        return has_room and int(chunk.header.chunk_id) == self.next_offset

    def append(self, chunk: Chunk) -> None:
        header = chunk.header
        with self._path("segment").open("ab") as segment:
            segment.writelines((header.to_bytes(), chunk.bloom, chunk.data, chunk.trailer))
        with self._path("index").open("ab") as index:
            index.write(IndexRecord.of(header, self.size_bytes).to_bytes())
        self.size_bytes += header.total_bytes
        self.chunks += 1
        self.messages += header.records if header.type is ChunkType.USER else 0
        self.next_offset = header.next_offset

    def publish(self, place: SegmentPlace, directory: str) -> None:
        # The index first: whoever finds a segment finds its index, too.
        for suffix in ("index", "segment"):
            path = self._path(suffix)
            place.publish(f"{directory}/{path.name}", path)

    def _path(self, suffix: str) -> Path:
        return self.directory / file_name(self.first_offset, "index" if suffix == "index" else "segment")
