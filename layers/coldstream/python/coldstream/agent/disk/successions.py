"""Which segment followed which, as the broker had them: remembered where the leader changed between the two.

    <state directory>/pins/<incarnation>/<offset, 20 digits>-<epoch before>-<epoch after>.succession

Such an empty file says that one log has a chunk of the epoch before up to that offset, and one of the epoch after from
there on. An epoch has one leader, and a leader writes one log. So those two chunks are known by this alone, and one log
holds both for good, whatever becomes of the files.

That two files meet at an offset shows nothing: what a lost leader wrote may end where the next leader's log has a
border, too. But the files that the broker has at one moment are of one log.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from coldstream.format.chunk import ChunkHeader
from coldstream.units import Offset

SUFFIX = ".succession"


class Successions:
    """The successions of one stream; `directory` is that of its pins."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._added: set[Path] = set()
        self._forgotten_to = Offset(0)

    def add(self, before: ChunkHeader, after: ChunkHeader) -> None:
        """Remember that the broker had `before` at the end of a file, and at once `after` at the start of the next."""
        path = self._path(before, after)
        self._added.add(path)
        # On a full disk only archiving makes room, so go on without the file: until a restart this remembers it.
        with suppress(OSError):
            path.touch()

    def holds(self, before: ChunkHeader, after: ChunkHeader) -> bool:
        """Tell whether one log has `after` right after `before`."""
        if before.next_offset != int(after.chunk_id):
            return False
        path = self._path(before, after)
        return before.epoch == after.epoch or path in self._added or path.exists()

    def forget_to(self, offset: Offset) -> None:
        """Forget those at or before an offset: no segment that ends there is pinned any more."""
        if offset <= self._forgotten_to:
            return
        for path in {*self._added, *self._directory.glob(f"*{SUFFIX}")}:
            if int(path.name.partition("-")[0]) <= offset:
                path.unlink(missing_ok=True)
                self._added.discard(path)
        self._forgotten_to = offset

    def _path(self, before: ChunkHeader, after: ChunkHeader) -> Path:
        return self._directory / f"{before.next_offset:020}-{before.epoch}-{after.epoch}{SUFFIX}"
