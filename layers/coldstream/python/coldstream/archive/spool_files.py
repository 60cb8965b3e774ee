"""`SpoolFiles`: temporary files that are written again, rather than made anew.

A file system gives a new file new pages, and takes them back when it ends: half of the processor time of writing it.
Pages that a file has are only written. So the files of fragments that were sent take the next ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import BinaryIO, cast


class SpoolFiles:
    """Unlinked files in a directory, by default the system's. Threads share it; close it.

    They are as many as were ever lent at once. A file that comes back has its bytes still: whoever is lent it next
    writes over them, and cuts it off at its own end.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._free: list[FileIO] = []
        self._is_closed = False
        self._lock = Lock()

    def lend(self) -> BinaryIO:
        """Lend a file, at its first byte, until it is closed. Raises OSError."""
        with self._lock:
            file = self._free.pop() if self._free else None
        if file is None:
            file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115  closed with the others
        file.seek(0)
        return cast("BinaryIO", _LentFile(file, partial(self._take_back, file)))

    def close(self) -> None:
        """Free the disk: of files that are lent, once they come back."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for file in free:
            file.close()

    def _take_back(self, file: FileIO) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(file)
                return
        file.close()


class _LentFile(FileIO):
    """A file for one borrower: once closed it reads and writes nothing, whoever has the file then."""

    def __init__(self, file: FileIO, give_back: Callable[[], None]) -> None:
        super().__init__(file.fileno(), "r+b", closefd=False)
        self._give_back = give_back

    def close(self) -> None:
        """Give the file back, once."""
        if not self.closed:
            super().close()
            self._give_back()
