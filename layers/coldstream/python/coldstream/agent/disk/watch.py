"""Notice at once when a segment rolls: by inotify(7), and by scans for what its events leave out.

The kernel reports files that come and go in a directory by one watch for each directory. Writes to them are not asked
for, so a broker under load wakes nobody here. Every directory gets a watch of its own, rather than one recursive watch
of a library: a directory that cannot be watched has to be known, and scanned more often.

A scan compares the modification times of the stream directories. They change as files come and go, but not as files are
written to. 1,000 directories take 3 ms.

One thread does all of it, so that nothing here needs a lock. Memory is bounded: the kernel queues 16,384 events (sysctl
fs.inotify.max_queued_events). It drops those that follow, and says so; then everything is looked at again.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from select import POLLIN, poll

from inotify_simple import INotify, flags

from coldstream.format.segment import first_offset_of

SCAN_S = 2.0
"""Between scans while events do not tell everything."""

EVENTS_SCAN_S = 30.0
"""Between scans while they do."""

_COMES = flags.CREATE | flags.MOVED_TO
_GOES = flags.DELETE | flags.MOVED_FROM
_DATA_MASK = _COMES | _GOES | flags.ONLYDIR
_STREAM_MASK = _COMES | flags.ONLYDIR

_DATA = ""
"""The name of the broker's directory itself; those of streams lie in it."""

_LIMITS = {
    errno.ENOSPC: "the limit of inotify watches is reached: raise the sysctl fs.inotify.max_user_watches",
    errno.EMFILE: (
        "the limit of inotify instances, or of open files, is reached: raise the sysctl fs.inotify.max_user_instances,"
        " or LimitNOFILE"
    ),
}


class SegmentWatch:
    """Calls `on_change` with the name of a stream directory when it comes, goes, or gets a new segment file.

    It does so once for each directory that is there at the start, and now and then without cause. `directory`, the
    broker's, may be absent at first. `on_change` is called in the thread of the watch, and must neither block nor
    raise.
    """

    def __init__(
        self,
        directory: Path,
        on_change: Callable[[str], None],
        *,
        scan_s: float = SCAN_S,
        events_scan_s: float = EVENTS_SCAN_S,
    ) -> None:
        self._directory = directory
        self._on_change = on_change
        self._scan_s = scan_s
        self._events_scan_s = events_scan_s
        self._is_stopping = False
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="segment watch", daemon=True)
        self._problem: str | None = None
        # What follows belongs to the thread.
        self._inotify: INotify | None = None
        self._names: dict[int, str] = {}  # by watch descriptor
        self._watches: dict[str, int] = {}  # the reverse
        self._times: dict[str, int] = {}  # modification times, as of the last scan
        self._changed: set[str] = set()  # by the last scan
        self._told: set[str] = set()  # by events since then
        self._has_lost_events = False
        self._must_scan = False

    @property
    def problem(self) -> str | None:
        """Why events do not tell everything, so that only scans notice some rolls; None if events do."""
        return self._problem

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End; `on_change` is not called any more once this returns."""
        if self._stop_fd < 0:
            return
        self._is_stopping = True
        if self._thread.is_alive():
            os.eventfd_write(self._stop_fd, 1)  # the thread waits for it beside the events
            self._thread.join()
        # After the join: the thread polls this descriptor, whose number another file could get.
        os.close(self._stop_fd)
        self._stop_fd = -1

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                # Cleared before the scan, as the scan takes events too, and one of those may ask for the next scan.
                self._must_scan = False
                # Watch first, then scan: what changes between the two is an event. The other way round, nothing would
                # tell it.
                is_complete = self._watch_all()
                self._scan()
                self._wait(self._events_scan_s if is_complete and self._inotify is not None else self._scan_s)
        finally:
            self._close_inotify()

    def _wait(self, timeout_s: float) -> None:
        """Take events until the next scan is due, an event calls for one, or the watch is stopped."""
        poller = poll()
        poller.register(self._stop_fd, POLLIN)
        if self._inotify is not None:
            poller.register(self._inotify, POLLIN)
        deadline = time.monotonic() + timeout_s
        while not self._is_stopping and not self._must_scan:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            # Rounded up: to wait for 0 ms until the deadline is there would keep a processor busy.
            for fd, _ in poller.poll(int(left_s * 1000) + 1):
                if fd != self._stop_fd:
                    self._take_events()
                    if (
                        self._inotify is None
                    ):  # it failed: the next scan opens another, and there are no events until then
                        poller.unregister(fd)
                        deadline = min(deadline, time.monotonic() + self._scan_s)

    # Events.

    def _take_events(self) -> None:
        """Take the events that are here, without waiting for any."""
        if self._inotify is None:
            return
        try:
            events = self._inotify.read(timeout=0)
        except OSError:
            self._close_inotify()
            self._has_lost_events = True
            return
        for event in events:
            if event.mask & flags.Q_OVERFLOW:
                self._has_lost_events = self._must_scan = True
            elif event.mask & flags.IGNORED:  # the directory is gone, and its watch with it
                self._forget_watch(event.wd)
            elif (name := self._names.get(event.wd)) is not None:
                self._take_event(name, event.name, event.mask)

    def _take_event(self, directory: str, name: str, mask: int) -> None:
        if directory != _DATA:
            if first_offset_of(name) is not None and name.endswith(".segment"):
                self._tell(directory)
        elif name and mask & flags.ISDIR:
            if mask & _COMES and self._watch(name) is not None:
                self._must_scan = True  # it has no watch: that is a problem to report, and shortens the scans' interval
            # Told although it may be empty still. What is put into it before its watch is there causes no event, but
            # the archiver that this starts looks into it.
            self._tell(name)

    def _tell(self, name: str) -> None:
        if not self._is_stopping:
            self._told.add(name)
            self._on_change(name)

    # Watches.

    def _watch_all(self) -> bool:
        """Watch every directory that is not watched yet; return whether all of them are watched now."""
        if self._inotify is None:
            try:
                self._inotify = INotify()
            except OSError as err:
                return self._fail(err, "all stream directories")
        # First the broker's directory, then the streams in it: a stream that comes between the two steps is reported by
        # an event, or is in the list already. The other way round it would be missed.
        if (failure := self._watch(_DATA)) is not None:
            return self._fail(failure, str(self._directory))
        names = self._stream_directories()
        for name in names:
            if (refusal := self._watch(name)) is not None:
                failure = refusal
                if refusal.errno in _LIMITS:
                    break
        if failure is not None:
            unwatched = sum(name not in self._watches for name in names)
            return self._fail(failure, f"{unwatched} of {len(names)} stream directories")
        self._problem = None
        return _DATA in self._watches

    def _watch(self, name: str) -> OSError | None:
        """Watch a directory unless it is watched; return what prevents it. A directory that is gone is no failure."""
        if self._inotify is None or name in self._watches:
            return None
        try:
            watch = self._inotify.add_watch(self._directory / name, _STREAM_MASK if name else _DATA_MASK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as err:
            return err
        self._names[watch] = name
        self._watches[name] = watch
        return None

    def _forget_watch(self, watch: int) -> None:
        name = self._names.pop(watch, None)
        # A directory that went and came back has a newer watch, which stays.
        if name is not None and self._watches.get(name) == watch:
            del self._watches[name]

    def _close_inotify(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None
        self._names.clear()
        self._watches.clear()

    def _fail(self, err: OSError, what: str) -> bool:
        why = _LIMITS.get(err.errno or 0) or f"they cannot be watched ({err.strerror})"
        self._problem = f"no file-system events for {what}, which are scanned every {self._scan_s:g} s instead; {why}"
        return False

    # Scans.

    def _scan(self) -> None:
        """Tell what changed since the last scan, and again what that scan had found changed.

        Two changes within one tick of the clock leave the same modification time, and the second may come after the
        scan that saw the first.
        """
        # Taken before the times are read: what events tell during the scan is for the next one.
        told, self._told = self._told, set()
        if self._has_lost_events:
            self._has_lost_events = False
            # Nobody knows which events are lost, so everything is told again, even what events have told.
            told, self._changed = set(), set(self._times)
        times = {name: _modified_ns(self._directory / name) for name in self._stream_directories()}
        changed = {name for name in times.keys() | self._times.keys() if times.get(name) != self._times.get(name)}
        for name in sorted((changed | self._changed) - told):
            if self._is_stopping:
                return
            self._on_change(name)
            # At the start there are many to tell, and what rolls meanwhile must not wait for them.
            self._take_events()
        self._times, self._changed = times, changed

    def _stream_directories(self) -> list[str]:
        try:
            with os.scandir(self._directory) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except OSError:  # absent; or unreadable, which the watch of it has reported
            return []


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
