"""What the head of a direct stream has besides: who appends to it, and where what they append is before the manifest.

A direct stream is appended to without a broker. Whoever opens it to write raises its `epoch` by one conditional write,
and says in which write-ahead log (WAL) its batches will be. Until these are in the manifest, the opening stays in the
head: whoever opens the stream next seals those WALs and recovers the batches from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import InvalidNameError
from coldstream.units import Epoch, Offset

MAX_PROPERTIES_BYTES = 4096
"""Bytes of a stream's properties at most, names and values: they are in the head, which every change writes."""

_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


class WalKind(StrEnum):
    """Where a write-ahead log is. Only what is in S3, the archive's own bucket, is at hand for whoever opens a stream.

    S3 Express is another bucket, which the archive does not know: an opener that looked for such a WAL in the archive's
    would find nothing, and take that for the end. So it is a kind of its own.
    """

    S3 = "s3"
    EXPRESS = "s3-express"
    DISK = "disk"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class WalPlace:
    """One write-ahead log: that of the process `writer`, 1 to 63 characters of A-Z a-z 0-9 -, and its `epoch`.

    A writer whose WAL was sealed goes on in another one, of its next epoch. The first is 1.
    """

    kind: WalKind
    writer: str
    epoch: int

    def __post_init__(self) -> None:
        check_writer(self.writer)
        if self.epoch < 1:
            raise ValueError(f"the epoch of a write-ahead log is 1 or more, not {self.epoch}")

    def __str__(self) -> str:
        return f"{self.kind} {self.writer}/{self.epoch}"


def check_writer(name: str) -> None:
    """Raise InvalidNameError unless `name` may be that of a writer."""
    if not _WRITER.fullmatch(name):
        raise InvalidNameError("writer", f"{name[:80]!r} is not 1 to 63 characters of A-Z a-z 0-9 -")


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening of a stream to write: its epoch, and the WAL of its batches."""

    epoch: Epoch
    wal: WalPlace


@dataclass(frozen=True, slots=True)
class Appender:
    """The state of appending to a direct stream.

    `epoch` is that of the last opening, 0 before the first. `openings` are those whose batches may not all be in the
    manifest, by epoch; the last one is open unless its process died. Without any, the stream is closed. `first` is the
    offset at which the stream begins; below `start`, it was trimmed. A sealed stream takes nothing any more.
    `properties` are its creator's.
    """

    epoch: Epoch = Epoch(0)  # noqa: RUF009  a NewType is its value
    openings: tuple[Opening, ...] = ()
    first: Offset = Offset(0)  # noqa: RUF009
    start: Offset = Offset(0)  # noqa: RUF009
    is_sealed: bool = False
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether a process has the stream open to write, or died with it."""
        return bool(self.openings)


def properties_of(named: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return properties as an appender has them, by name. Raises InvalidNameError if they are too large."""
    try:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in named.items())
    except UnicodeEncodeError as err:
        raise InvalidNameError("properties", "are not text that UTF-8 can hold") from err
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidNameError("properties", f"have {size} bytes, of {MAX_PROPERTIES_BYTES} at most")
    return tuple(sorted(named.items()))
