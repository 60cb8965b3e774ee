"""Pins: hard links to segment files, which keep what the broker deletes until the archive has it.

    <state directory>/pins/<incarnation>/<first offset, 20 digits>.segment

The agent links a file as soon as it sees it, the newest segment's too: the link shows what the broker appends and what
it truncates. A link costs no space until the broker deletes its own. The agent never writes to the broker's files, and
never removes one.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from coldstream.agent.disk.file_marks import FileMarks
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.ingest.segment_files import segment_files as _segment_files
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned segment. `is_live` says that the broker has the file, `is_active` that it may still write to it."""

    path: Path
    first_offset: Offset
    is_active: bool
    is_live: bool


@dataclass(frozen=True, slots=True)
class PinSpace:
    """How many segments are pinned, their bytes, and the bytes that only the pins keep on the disk."""

    segments: int = 0
    size_bytes: int = 0
    orphaned_bytes: int = 0


class StreamPins:
    """The pins of one stream. `source` is the broker's directory of it, None if the files are the agent's own.

    Whoever writes the agent's own files sets `is_ended` when nothing more comes. `unpinned` are the files that could
    not be pinned in the last refresh, and `failure` is the reason.
    """

    def __init__(self, directory: Path, source: Path | None) -> None:
        self.directory = directory
        self._source = source
        self.is_ended = False
        self.failure: OSError | None = None
        self.unpinned: tuple[Offset, ...] = ()

    def refresh(self, archived_to: Offset, committed_to: Offset) -> tuple[Pin, ...]:
        """Pin the files that are new and not archived, and return all pins, oldest first.

        A file that has taken the place of a pinned one is pinned in its stead, unless the pin holds committed chunks
        and is longer: then the broker is replicating the stream again. Raises OSError if the broker's directory cannot
        be read. A link that cannot be made, as on a full disk, is kept in `failure`, and the other files are still
        linked.
        """
        live = {} if self._source is None else segment_files(self._source)
        pinned = segment_files(self.directory)
        failures: dict[Offset, OSError] = {}
        replaced: set[Offset] = set()  # the pin is not the file that the broker has under that name
        for (offset, path), next_offset in zip_longest(live.items(), list(live)[1:]):
            # A file ends where the next one begins. An archived one would be pinned again at each look, only to be
            # released.
            if next_offset is not None and next_offset <= archived_to:
                continue
            try:
                if not self._pin(path, pinned.get(offset), is_committed=offset < committed_to):
                    replaced.add(offset)
            except OSError as err:
                failures[offset] = err
                replaced.add(offset)
        newest = max(live, default=None)
        # List the pins again: `pin_new` may have added some from its thread since.
        found = tuple(
            Pin(
                path,
                offset,
                is_active=offset == newest and offset not in replaced,
                is_live=self._source is None or (offset in live and offset not in replaced),
            )
            for offset, path in segment_files(self.directory).items()
        )
        self.failure, self.unpinned = next(iter(failures.values()), None), tuple(failures)
        return found

    def pin_new(self) -> None:
        """Pin the files that are newer than all pins, at once, and do nothing else; `refresh` handles what fails.

        Any thread may call this, also while another refreshes.
        """
        assert self._source is not None
        newest = max(segment_files(self.directory), default=-1)
        with suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            for offset, path in segment_files(self._source).items():
                # Older ones are left to `refresh`, which knows what is archived: this would pin again what was just
                # released.
                if offset > newest:
                    os.link(path, self.directory / path.name)

    @property
    def are_own(self) -> bool:
        """Whether the files are the agent's own: a broker delivered what is in them, so it is committed."""
        return self._source is None

    @property
    def is_live(self) -> bool:
        """Whether the broker has files of the stream here.

        Raises UnavailableError when the directory of all streams is gone: that says nothing about one of them.
        """
        if self._source is None:
            return not self.is_ended
        if not self._source.parent.is_dir():
            raise UnavailableError(f"the broker's data directory is gone: {self._source.parent}")
        return self._source.is_dir()

    def holds_live(self, pin: Pin) -> bool:
        """Tell whether the broker still has the very file."""
        try:
            return self._source is None or pin.path.samefile(self._source / pin.path.name)
        except FileNotFoundError:
            return False

    def first_live(self) -> Offset | None:
        """Return where the broker's oldest file begins now, None if it has none."""
        return None if self._source is None else min(segment_files(self._source), default=None)

    def is_gone(self, pin: Pin) -> bool:
        """Tell whether the broker has neither the file nor an older or equal one that took its place.

        A broker that replicates the stream again may have no file yet; then the pin is not gone. This asks the broker's
        directory now, not the last refresh. Raises UnavailableError as `is_live` does.
        """
        if self.holds_live(pin):
            return False
        live_from = self.first_live()
        return not self.is_live if live_from is None else live_from > pin.first_offset

    def marks(self, newest: Pin) -> FileMarks | None:
        """Take the marks of the broker's directory and the newest pin; None if they would prove nothing.

        Any thread may call this.
        """
        if self._source is None or self.failure is not None:
            return None
        return FileMarks.take(self._source, newest.path)

    def release(self, pin: Pin) -> None:
        """Release a segment; its space is free as soon as the broker has deleted its own name, too."""
        pin.path.unlink(missing_ok=True)

    def release_all(self) -> None:
        """Release the whole stream."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def space(self) -> PinSpace:
        """Measure the pins."""
        segments = size_bytes = orphaned_bytes = 0
        for path in segment_files(self.directory).values():
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            segments += 1
            size_bytes += found.st_size
            # One name is left, which is the pin's: the broker has deleted its own.
            if found.st_nlink == 1:
                orphaned_bytes += found.st_size
        return PinSpace(segments, size_bytes, orphaned_bytes)

    def _pin(self, path: Path, pinned: Path | None, *, is_committed: bool) -> bool:
        """Pin a file; return whether its pin is that file now."""
        try:
            if pinned is not None and path.samefile(pinned):
                return True
            # Another file of that name: the pinned one was truncated away, or the stream was replicated again.
            if pinned is not None and is_committed and path.stat().st_size < pinned.stat().st_size:
                return False
            self.directory.mkdir(parents=True, exist_ok=True)
            # Link beside the old pin, then rename over it. If the old pin were unlinked first, a crash in between could
            # lose the only copy.
            fresh = self.directory / f"{path.name}.new"
            fresh.unlink(missing_ok=True)
            os.link(path, fresh)
            fresh.replace(self.directory / path.name)
            # A rename does nothing if both names are one file, as when `pin_new` has linked it meanwhile.
            fresh.unlink(missing_ok=True)
        except FileNotFoundError:
            return False  # deleted meanwhile
        return True


def segment_files(directory: Path) -> dict[Offset, Path]:
    """Return the segment files of a directory by their first offset, in order; none if the directory is gone."""
    try:
        return _segment_files(directory)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def check_links(data_directory: Path, pins_directory: Path) -> None:
    """Try whether the broker's files can be pinned. Raises InvalidSettingError, which says what to do."""
    pins_directory.mkdir(parents=True, exist_ok=True)
    # The broker makes the directory with its first stream; until then its parent shows the file system.
    existing = data_directory if data_directory.exists() else data_directory.parent
    if existing.stat().st_dev != pins_directory.stat().st_dev:
        raise InvalidSettingError(
            "--state",
            f"{pins_directory} is on another file system than {data_directory}; hard links need the same one",
        )
    sample = next((path for path in data_directory.glob("*/*.segment")), None)
    if sample is None:
        return
    link = pins_directory / "try.link"
    # An agent that was killed between link and unlink has left one.
    link.unlink(missing_ok=True)
    try:
        os.link(sample, link)
    except FileNotFoundError:
        return  # deleted meanwhile
    except OSError as err:
        todo = "put it under the same mount" if err.errno == errno.EXDEV else "run as the broker's user"
        raise InvalidSettingError(
            "--state", f"cannot link {sample} into {pins_directory}: {err.strerror}; {todo}"
        ) from err
    link.unlink()
