from __future__ import annotations

import errno
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from inotify_simple import Event, INotify, flags

from coldstream.agent.disk import watch as watch_module
from coldstream.agent.disk.watch import SegmentWatch

SEGMENT = "00000000000000000000.segment"
ROLLED = "00000000000000000100.segment"
LONG_S = 600.0
"""Between scans, where events alone are to tell."""


class Watched:
    """A watch, and what it told so far."""

    def __init__(self, watch: SegmentWatch, told: queue.SimpleQueue[str]) -> None:
        self.watch = watch
        self._told = told

    def next(self, timeout_s: float = 5) -> str:
        return self._told.get(timeout=timeout_s)

    def wait_for(self, name: str) -> None:
        while self.next() != name:
            pass

    def rest(self, quiet_s: float = 0.15) -> list[str]:
        """Return what is told until nothing more is."""
        told: list[str] = []
        while True:
            try:
                told.append(self.next(quiet_s))
            except queue.Empty:
                return told


@contextmanager
def watching(directory: Path, *, scan_s: float = 0.05, events_scan_s: float = LONG_S) -> Iterator[Watched]:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    watch = SegmentWatch(directory, told.put, scan_s=scan_s, events_scan_s=events_scan_s)
    watch.start()
    try:
        yield Watched(watch, told)
    finally:
        watch.stop()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """The broker's directory, with a stream in it."""
    stream = tmp_path / "stream" / "__orders_1"
    stream.mkdir(parents=True)
    (stream / SEGMENT).touch()
    return stream


def test_streams_that_are_there_at_the_start_are_told(orders: Path) -> None:
    (orders.parent / "a file").touch()
    with watching(orders.parent) as watched:
        assert watched.rest() == ["__orders_1"]


def test_a_new_segment_is_told_at_once(orders: Path) -> None:
    with watching(orders.parent) as watched:
        watched.rest()
        started = time.monotonic()
        (orders / ROLLED).touch()
        assert watched.next() == "__orders_1"
        assert time.monotonic() - started < 1
        assert watched.watch.problem is None


def test_other_files_are_not_told(orders: Path) -> None:
    with watching(orders.parent) as watched:
        watched.rest()
        (orders / "00000000000000000100.index").touch()
        (orders / SEGMENT).unlink()
        assert watched.rest() == []


def test_a_new_stream_is_told_and_watched(orders: Path) -> None:
    with watching(orders.parent) as watched:
        watched.rest()
        (orders.parent / "__new_2").mkdir()
        assert watched.next() == "__new_2"
        (orders.parent / "__new_2" / SEGMENT).touch()
        assert watched.next() == "__new_2"


def test_a_stream_that_goes_is_told_and_again_when_it_comes_back(orders: Path) -> None:
    with watching(orders.parent) as watched:
        watched.rest()
        (orders / SEGMENT).unlink()
        orders.rmdir()
        assert watched.rest() == ["__orders_1"]
        orders.mkdir()
        assert watched.rest() == ["__orders_1"]
        (orders / SEGMENT).touch()
        assert watched.rest() == ["__orders_1"]


def test_writes_wake_nobody(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wakes: list[list[Event]] = []
    read = INotify.read

    def counted(self: INotify, timeout: int) -> list[Event]:
        events = read(self, timeout)
        wakes.append(events)
        return events

    monkeypatch.setattr(INotify, "read", counted)
    with watching(orders.parent) as watched, (orders / SEGMENT).open("ab", buffering=0) as file:
        watched.rest()
        wakes.clear()
        for _ in range(1000):
            file.write(b"x" * 1000)
        file.truncate(10)
        (orders / SEGMENT).read_bytes()
        assert watched.rest() == []
        assert wakes == []
        # The count does count.
        (orders / ROLLED).touch()
        watched.next()
        assert len(wakes) == 1


def test_modifications_are_not_asked_for(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masks: dict[Path, int] = {}
    add_watch = INotify.add_watch

    def noted(self: INotify, path: Path, mask: int) -> int:
        masks[path] = mask
        return add_watch(self, path, mask)

    monkeypatch.setattr(INotify, "add_watch", noted)
    with watching(orders.parent) as watched:
        watched.rest()
    asked = flags.MODIFY | flags.CLOSE_WRITE | flags.ATTRIB
    assert len(masks) == 2
    assert not any(mask & asked for mask in masks.values())


def test_a_directory_that_is_absent_at_first_is_watched_when_it_comes(tmp_path: Path) -> None:
    data = tmp_path / "mnesia" / "rabbit" / "stream"
    with watching(data) as watched:
        assert watched.rest() == []
        assert watched.watch.problem is None
        (data / "__orders_1").mkdir(parents=True)
        watched.wait_for("__orders_1")
        watched.rest()
        (data / "__orders_1" / SEGMENT).touch()
        assert watched.next() == "__orders_1"


def test_a_directory_that_is_made_anew_is_watched_again(orders: Path) -> None:
    with watching(orders.parent, events_scan_s=0.05) as watched:
        watched.rest()
        (orders / SEGMENT).unlink()
        orders.rmdir()
        orders.parent.rmdir()
        watched.wait_for("__orders_1")
        orders.mkdir(parents=True)
        watched.wait_for("__orders_1")
        watched.rest()
        (orders / ROLLED).touch()
        watched.wait_for("__orders_1")


class Limit:
    """Makes INotify refuse, as the kernel does at a limit."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        add_watch = INotify.add_watch

        def limited(inotify: INotify, path: Path, mask: int) -> int:
            if self.left <= 0:
                raise OSError(errno.ENOSPC, "inotify watch limit reached")
            self.left -= 1
            return add_watch(inotify, path, mask)

        patch.setattr(INotify, "add_watch", limited)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_past_the_limit_of_watches_scans_tell_and_say_which_sysctl_to_raise(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = orders.parent / "__more_2"
    more.mkdir()
    limit = Limit(monkeypatch, 2)
    with watching(orders.parent) as watched:
        watched.rest()
        assert watched.watch.problem is not None
        assert "no file-system events for 1 of 2 stream directories" in watched.watch.problem
        assert "fs.inotify.max_user_watches" in watched.watch.problem
        for stream in (orders, more):
            (stream / ROLLED).touch()
            watched.wait_for(stream.name)
        limit.left = 10
        eventually(lambda: watched.watch.problem is None)


def test_a_stream_that_comes_past_the_limit_is_scanned_from_then_on(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Limit(monkeypatch, 2)
    with watching(orders.parent) as watched:
        watched.rest()
        assert watched.watch.problem is None
        (orders.parent / "__new_2").mkdir()
        watched.wait_for("__new_2")
        eventually(lambda: watched.watch.problem is not None)
        (orders.parent / "__new_2" / SEGMENT).touch()
        watched.wait_for("__new_2")


def test_without_inotify_scans_tell(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> INotify:
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    monkeypatch.setattr(watch_module, "INotify", refuse)
    with watching(orders.parent) as watched:
        watched.wait_for("__orders_1")
        watched.rest()
        assert "fs.inotify.max_user_instances" in str(watched.watch.problem)
        (orders / ROLLED).touch()
        assert set(watched.rest()) == {"__orders_1"}
        (orders / ROLLED).write_bytes(b"a chunk")
        assert watched.rest() == []


def test_dropped_events_have_everything_looked_at_again(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watching(orders.parent) as watched:
        watched.rest()
        monkeypatch.setattr(INotify, "read", lambda *_, **__: [Event(-1, flags.Q_OVERFLOW, 0, "")])
        (orders / "00000000000000000100.index").touch()
        watched.wait_for("__orders_1")


def test_inotify_that_fails_is_opened_again_and_scans_tell_until_then(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = INotify.read
    failures = [OSError(errno.EIO, "Input/output error")]

    def failing(self: INotify, timeout: int) -> list[Event]:
        if failures:
            raise failures.pop()
        return read(self, timeout)

    with watching(orders.parent) as watched:
        watched.rest()
        monkeypatch.setattr(INotify, "read", failing)
        (orders / ROLLED).touch()
        watched.wait_for("__orders_1")
        watched.rest()
        (orders / "00000000000000000200.segment").touch()
        assert watched.rest() == ["__orders_1"]


def test_a_scan_tells_what_events_did_not_and_only_that(orders: Path) -> None:
    with watching(orders.parent, events_scan_s=0.05) as watched:
        watched.rest()
        (orders / ROLLED).touch()
        assert watched.next() == "__orders_1"
        told = watched.rest()
        # Once at the event; the scan after it has the change for one that was told, the next one looks once more.
        assert told in ([], ["__orders_1"])
        (orders / SEGMENT).unlink()
        assert set(watched.rest()) == {"__orders_1"}


def test_nothing_is_told_after_the_stop(orders: Path) -> None:
    with watching(orders.parent) as watched:
        watched.rest()
    (orders / ROLLED).touch()
    assert watched.rest(0.1) == []


def test_a_thousand_streams_are_watched_by_one_thread(tmp_path: Path) -> None:
    import threading  # noqa: PLC0415

    for number in range(1000):
        (tmp_path / f"__s{number}_1").mkdir()
    before = threading.active_count()
    with watching(tmp_path) as watched:
        started = {watched.next() for _ in range(1000)}
        assert len(started) == 1000
        assert watched.watch.problem is None
        assert threading.active_count() - before == 1
        (tmp_path / "__s999_1" / SEGMENT).touch()
        assert watched.next() == "__s999_1"


def test_a_watch_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    SegmentWatch(tmp_path, lambda _: None).stop()


def test_streams_that_come_and_go_all_the_time_do_not_hurt_it(tmp_path: Path) -> None:
    with watching(tmp_path, events_scan_s=0.01) as watched:
        for number in range(300):
            stream = tmp_path / f"__s{number}_1"
            stream.mkdir()
            (stream / SEGMENT).touch()
            (stream / SEGMENT).unlink()
            stream.rmdir()
        (tmp_path / "__last_1").mkdir()
        watched.wait_for("__last_1")
        assert watched.watch.problem is None
