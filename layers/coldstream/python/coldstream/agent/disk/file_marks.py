"""Marks of a stream's files, by which it shows without reading them whether they are as they were.

A directory's modification time changes when files come and go in it, and a file's when it is written to or truncated.
So the newest segment and the broker's directory show all that can happen to a stream: the broker writes to no segment
but the newest, and truncates an older one only by deleting those after it.

The kernel takes these times from a clock that ticks every few milliseconds. Two changes in one tick leave the same
time, and the second may come after the marks were taken. So marks of what changed just before are none.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

UNSURE_NS = 2_000_000_000
"""A change less than this before the marks: file systems that count whole seconds have a tick of one."""


@dataclass(frozen=True, slots=True)
class FileMarks:
    """What tells the files of one moment from those of another: inode, modification time and size of each."""

    marks: tuple[int, ...]

    @classmethod
    def take(cls, *paths: Path) -> FileMarks | None:
        """Take the marks of files and directories; None if one is gone, or changed so lately that marks prove nothing.

        Cost: a stat each.
        """
        # Before the times are read: a file that changes between the two must count as changed just now.
        unsure_from = time.time_ns() - UNSURE_NS
        marks: list[int] = []
        for path in paths:
            try:
                found = os.stat(path)  # noqa: PTH116  Path.stat costs as much again, and each stream comes here each scan
            except OSError:
                return None
            # A time ahead of the clock, which has been set back, counts as late, too: that only costs a look.
            if found.st_mtime_ns >= unsure_from:
                return None
            marks += (found.st_ino, found.st_mtime_ns, found.st_size)
        return cls(tuple(marks))
