"""The guard of the disk: pins that are not archived are released before they fill it, if the options say so.

Pins keep what the broker's retention deletes. While AWS cannot be reached they grow, and a full disk would stop the
broker's publishers. `--release-pins-below` prefers a known gap in the archive to that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from coldstream.agent.archiver import StreamArchiver
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.manifest.stream import Incarnation


class DiskGuard:
    """Keeps `limit_bytes` of the disk of `directory` free at the cost of pins; None releases nothing, ever.

    `host` is named in the reason that the archive's gap gets.
    """

    def __init__(
        self, directory: Path, limit_bytes: int | None, archivers: Mapping[Incarnation, StreamArchiver], host: str
    ) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._archivers = archivers
        self._host = host

    def check_limit(self) -> None:
        """Raise InvalidSettingError if the limit exceeds the disk: then every pin would be released."""
        space = os.statvfs(self._directory)
        if self._limit_bytes is not None and self._limit_bytes >= space.f_blocks * space.f_frsize:
            raise InvalidSettingError(
                "--release-pins-below", "is more than the whole disk: every pin would be released"
            )

    async def release_pins(self) -> None:
        """Release pins while the disk is nearly full: those that the broker has deleted, oldest first.

        The missing bytes are counted down by the size of each file. To measure again after each would release too many,
        as a file system need not free the space at the moment that a file loses its last name. Raises UnavailableError
        when the disk is nearly full and no pin can be released.
        """
        missing_bytes = 0 if self._limit_bytes is None else self._limit_bytes - _free_bytes(self._directory)
        while missing_bytes > 0:
            # Looked for in each round: during the await below, archivers end, and others get a new oldest pin.
            oldest = min(self._releasable(), key=lambda pin: pin[0], default=None)
            if oldest is None:
                raise UnavailableError(
                    "the disk is nearly full, and no pin is left that could be released; add room, or get AWS back"
                )
            _, size_bytes, archiver = oldest
            await archiver.give_up_oldest(f"the disk of {self._host} was nearly full before they were archived")
            # Also if the archiver has kept the pin after all: the loop would otherwise ask it for the same pin for
            # ever.
            missing_bytes -= size_bytes

    def _releasable(self) -> Iterator[tuple[float, int, StreamArchiver]]:
        """Yield when each stream's oldest pin was last written to, its size, and the stream's archiver.

        A pin of a file that the broker still has frees nothing when it is released, so it is none of them.
        """
        for archiver in self._archivers.values():
            # Read without the disk's turn: a look in a thread replaces `segments` as a whole, and never changes it.
            pin = next(iter(archiver.disk.segments), None)
            if pin is not None and not pin.is_active and archiver.disk.pins.is_gone(pin):
                try:
                    stat = pin.path.stat()
                    yield stat.st_mtime, stat.st_size, archiver
                except FileNotFoundError:
                    continue  # archived and released meanwhile


def _free_bytes(path: Path) -> int:
    space = os.statvfs(path)
    # Not `f_bfree`: that includes the blocks kept for root, which the broker cannot use.
    return space.f_bavail * space.f_frsize
