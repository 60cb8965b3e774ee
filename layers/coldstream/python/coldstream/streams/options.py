"""`StreamOptions`: the settings of a client."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.errors import InvalidSettingError
from coldstream.streams.flush.options import FlushOptions
from coldstream.streams.wal.options import WalOptions
from coldstream.units import MIB


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Settings of a client. `wal` says when batches go into the WAL, `flush` when they go from there into the archive.

    `memory_bytes` bound what batches take in memory, those under way, those that are not flushed, and caches: appends
    wait while there is no room. At most `threads` calls to S3 and the table are under way at a time, and beside them
    the WAL's own, `wal.in_flight` and two more. `writer` names this process in keys and in the head, by default by its
    host; random letters follow, so that no two clients share a name.
    """

    wal: WalOptions = field(default_factory=WalOptions)
    flush: FlushOptions = field(default_factory=FlushOptions)
    memory_bytes: int = 512 * MIB
    threads: int = 32
    writer: str | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes < 1:
            raise InvalidSettingError("memory_bytes", f"{self.memory_bytes} is not more than 0")
        if self.threads < 1:
            raise InvalidSettingError("threads", f"{self.threads} is not more than 0")
