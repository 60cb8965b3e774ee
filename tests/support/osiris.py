"""Ask osiris, the broker's own log library, about a log, or have it write one: the judge of our reading and writing.

It runs out of the broker's installation, without a broker. A call costs about 0.3 s, and 1 ms more a question; ask
many at once.
"""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coldstream.format.chunk import Chunk
from tests.support.broker import find_rabbitmq

ORACLE = Path(__file__).with_name("osiris_oracle.escript")


class OsirisError(Exception):
    """Osiris failed as a whole: the log is damaged, or the question is."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Where osiris crashes instead of answering, and its reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class OsirisChunk:
    """A chunk's header as osiris reads it, its CRC found right; `position` counts from the start of its segment."""

    chunk_id: int
    type: int
    epoch: int
    timestamp: int
    records: int
    entries: int
    crc: int
    data_bytes: int
    trailer_bytes: int
    position: int

    @classmethod
    def of(cls, chunk: Chunk) -> Self:
        """Put what our package reads in the same terms."""
        header = chunk.header
        return cls(
            header.chunk_id,
            header.type,
            header.epoch,
            header.timestamp,
            header.records,
            header.entries,
            header.crc,
            header.data_bytes,
            header.trailer_bytes,
            chunk.position,
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A sub-batch as it is stored; osiris does not look into `data`."""

    records: int
    compression: int
    uncompressed_bytes: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ChunkToWrite:
    """What osiris makes a chunk of; it gives ids, counts and CRC itself."""

    entries: Sequence[bytes | Batch]
    timestamp: int
    type: int = 0
    epoch: int = 1
    trailer: bytes = b""


@dataclass(frozen=True, slots=True)
class Round:
    """What reaches a stream's leader at once; `tracking` is of type (sequence, offset, timestamp), id and value."""

    entries: Sequence[bytes | Batch]
    timestamp: int
    epoch: int = 1
    tracking: Sequence[tuple[str, bytes, int]] = ()


def find_osiris() -> Path | None:
    """Return the broker's plugins directory, which osiris is in, or None where RabbitMQ is not installed."""
    scripts = find_rabbitmq()
    if scripts is None or not any((scripts.parent / "plugins").glob("osiris-*/ebin/osiris_log.beam")):
        return None
    return scripts.parent / "plugins"


@dataclass(frozen=True, slots=True)
class OsirisLog:
    """A directory of segments and indexes, through osiris's eyes."""

    directory: Path

    def attach(self, specs: Iterable[str]) -> list[int | Crash]:
        """Return the chunk id at which osiris attaches for each spec: `first`, `last`, `next`, `17`, `timestamp:1700`.

        That is before a reader skips chunks that are not the user's. The tail is the next offset.
        """
        answers = self._ask("attach", lines=specs)
        return [
            Crash(answer.removeprefix("error ")) if answer.startswith("error") else int(answer) for answer in answers
        ]

    def chunks(self) -> list[OsirisChunk]:
        """Return every chunk of any type, in order, over all segments. Raises OsirisError where one is damaged."""
        return [OsirisChunk(*map(int, line.split())) for line in self._ask("chunks")]

    def range(self) -> tuple[int, int] | None:
        """Return the first and the last offset, both inclusive; None for a log without chunks."""
        [answer] = self._ask("range")
        if answer == "empty":
            return None
        first, last = answer.split()
        return int(first), int(last)

    def write(
        self, chunks: Iterable[ChunkToWrite], *, max_segment_bytes: int = 500_000_000, max_segment_chunks: int = 256_000
    ) -> None:
        """Append chunks as they are given, rolling segments. Epochs must not fall, clocks may."""
        lines = (
            f"{chunk.epoch} {chunk.timestamp} {chunk.type} {_base64(chunk.trailer)}{_entries(chunk.entries)}"
            for chunk in chunks
        )
        self._write("write", lines, max_segment_bytes, max_segment_chunks)

    def lead(
        self, rounds: Iterable[Round], *, max_segment_bytes: int = 500_000_000, max_segment_chunks: int = 256_000
    ) -> None:
        """Write a log as a stream's leader does, with the tracking chunks that come of it.

        Snapshots carry the time of day, whatever the round says.
        """
        lines = (
            f"{given.epoch} {given.timestamp} {_tracking(given.tracking)}{_entries(given.entries)}" for given in rounds
        )
        self._write("lead", lines, max_segment_bytes, max_segment_chunks)

    def _write(self, command: str, lines: Iterable[str], max_segment_bytes: int, max_segment_chunks: int) -> None:
        if max_segment_bytes <= 8 or max_segment_chunks < 1:
            raise ValueError("osiris rolls for ever where an empty segment counts as full")
        self._ask(command, str(max_segment_bytes), str(max_segment_chunks), lines=lines)

    def _ask(self, command: str, *arguments: str, lines: Iterable[str] = ()) -> list[str]:
        done = subprocess.run(
            ["escript", ORACLE, str(find_osiris()), command, self.directory, *arguments],
            input="".join(f"{line}\n" for line in lines),
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "ERL_CRASH_DUMP_BYTES": "0"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise OsirisError(f"{command} {self.directory}: {done.stdout[-1000:]}{done.stderr[-3000:]}")
        return done.stdout.splitlines()


def _entries(entries: Iterable[bytes | Batch]) -> str:
    return "".join(
        f" {_base64(entry)}"
        if isinstance(entry, bytes)
        else f" {entry.records}:{entry.compression}:{entry.uncompressed_bytes}:{_base64(entry.data)}"
        for entry in entries
    )


def _tracking(records: Iterable[tuple[str, bytes, int]]) -> str:
    return ",".join(f"{kind}:{_base64(identity)}:{value}" for kind, identity, value in records) or "-"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode() or "-"
