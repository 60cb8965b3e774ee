"""Pins: hard links to segment files, which keep what the broker deletes until the archive has it.

    <state directory>/pins/<incarnation>/<first offset, 20 digits>.segment

A link is made as soon as a file is seen, the newest segment's too: it shows what the broker appends, and what it
truncates. It costs no space until the broker deletes its own. Nothing of the broker's is ever written to or removed.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.format.segment import segment_paths
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
    """Segments pinned, the bytes they have, and the bytes that are on the disk for the sake of the pin alone."""

    segments: int = 0
    size_bytes: int = 0
    orphaned_bytes: int = 0


class StreamPins:
    """The pins of one stream. `source` is the broker's directory of it, None where the files are the agent's own.

    Those have `is_ended` set when nothing more comes. `unpinned` are the files that could not be pinned, the last time,
    and `failure` is why.
    """

    def __init__(self, directory: Path, source: Path | None) -> None:
        self.directory = directory
        self._source = source
        self.is_ended = False
        self.failure: OSError | None = None
        self.unpinned: tuple[Offset, ...] = ()

    def refresh(self, archived_to: Offset, committed_to: Offset) -> tuple[Pin, ...]:
        """Pin what is new and not archived, and return all pins, oldest first.

        A file that takes the place of a pinned one is pinned in its stead, but for one that holds committed chunks and
        is longer: then the broker makes its replica anew. Raises OSError where the broker's directory cannot be read; a
        link that cannot be made, as on a full disk, is a `failure` and keeps no other from being made.
        """
        live = {} if self._source is None else segment_files(self._source)
        pinned = segment_files(self.directory)
        failures: dict[Offset, OSError] = {}
        kept: set[Offset] = set()
        for (offset, path), next_offset in zip_longest(live.items(), list(live)[1:]):
            if next_offset is not None and next_offset <= archived_to:
                continue
            try:
                if not self._pin(path, pinned.get(offset), is_committed=offset < committed_to):
                    kept.add(offset)
            except OSError as err:
                failures[offset] = err
                kept.add(offset)
        newest = max(live, default=None)
        found = tuple(
            Pin(
                path,
                offset,
                is_active=offset == newest and offset not in kept,
                is_live=self._source is None or (offset in live and offset not in kept),
            )
            for offset, path in segment_files(self.directory).items()
        )
        self.failure, self.unpinned = next(iter(failures.values()), None), tuple(failures)
        return found

    def pin_new(self) -> None:
        """Pin what is newer than all pins, at once and nothing else: `refresh` is for the rest, and for what fails.

        Any thread may call it, beside one that refreshes.
        """
        assert self._source is not None
        newest = max(segment_files(self.directory), default=-1)
        with suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            for offset, path in segment_files(self._source).items():
                if offset > newest:
                    os.link(path, self.directory / path.name)

    @property
    def are_own(self) -> bool:
        """Tell whether the files are the agent's own: a broker delivered what is in them, so that it is committed."""
        return self._source is None

    @property
    def is_live(self) -> bool:
        """Tell whether the broker has files of the stream here.

        Raises UnavailableError when the directory of all its streams is gone: that says nothing about one of them.
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
        """Return where the oldest file begins that the broker has now, None when it has none."""
        return None if self._source is None else min(segment_files(self._source), default=None)

    def is_gone(self, pin: Pin) -> bool:
        """Tell whether the broker has neither the file nor, in one that begins no later, what took its place.

        Nor may it have that yet, where it makes its replica anew. Asked of its directory now, not of the last look.
        Raises UnavailableError as `is_live`.
        """
        if self.holds_live(pin):
            return False
        begins = self.first_live()
        return not self.is_live if begins is None else begins > pin.first_offset

    def release(self, pin: Pin) -> None:
        """Let go of a segment; its space is free when the broker has deleted it, too."""
        pin.path.unlink(missing_ok=True)

    def release_all(self) -> None:
        """Let go of the whole stream."""
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
            if found.st_nlink == 1:
                orphaned_bytes += found.st_size
        return PinSpace(segments, size_bytes, orphaned_bytes)

    def _pin(self, path: Path, pinned: Path | None, *, is_committed: bool) -> bool:
        """Pin a file; return whether its pin is that file now."""
        try:
            if pinned is not None and path.samefile(pinned):
                return True
            # Another file of that name: what was pinned was truncated away, or the replica was made anew.
            if pinned is not None and is_committed and path.stat().st_size < pinned.stat().st_size:
                return False
            self.directory.mkdir(parents=True, exist_ok=True)
            fresh = self.directory / f"{path.name}.new"
            fresh.unlink(missing_ok=True)
            os.link(path, fresh)
            fresh.replace(self.directory / path.name)
            fresh.unlink(missing_ok=True)  # there still when `pin_new` was faster: then both are one file
        except FileNotFoundError:
            return False  # deleted meanwhile
        return True


def segment_files(directory: Path) -> dict[Offset, Path]:
    """Return the segment files of a directory by their first offset, in order; none where it is gone."""
    try:
        return segment_paths(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}


def check_links(data_directory: Path, pins_directory: Path) -> None:
    """Try whether files of the broker's can be pinned. Raises InvalidSettingError, which says what to do."""
    pins_directory.mkdir(parents=True, exist_ok=True)
    made = data_directory if data_directory.exists() else data_directory.parent
    if made.stat().st_dev != pins_directory.stat().st_dev:
        raise InvalidSettingError(
            "--state",
            f"{pins_directory} is on another file system than {data_directory}; hard links need the same one",
        )
    sample = next((path for path in data_directory.glob("*/*.segment")), None)
    if sample is None:
        return
    link = pins_directory / "try.link"
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
