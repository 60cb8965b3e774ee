"""Pins: what the broker deletes stays, what it truncates goes, and its own files are never touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from coldstream.agent.disk.pins import PinSpace, StreamPins, check_links
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.units import Offset

NONE = Offset(0)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "__orders_1763700000000000000"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def pins(tmp_path: Path, live: Path) -> StreamPins:
    return StreamPins(tmp_path / "state" / "pins" / live.name, live)


def put(live: Path, offset: int, content: bytes = b"segment") -> Path:
    path = live / f"{offset:020}.segment"
    path.write_bytes(content)
    (live / f"{offset:020}.index").write_bytes(b"index")
    return path


def offsets(found: tuple) -> list[int]:
    return [pin.first_offset for pin in found]


def test_every_segment_is_pinned_and_the_newest_is_the_active_one(live, pins):
    for offset in (0, 100, 200):
        put(live, offset)
    found = pins.refresh(NONE, NONE)
    assert [(pin.first_offset, pin.is_active) for pin in found] == [(0, False), (100, False), (200, True)]
    assert all(pin.path.samefile(live / pin.path.name) for pin in found)


def test_what_retention_deletes_stays_pinned(live, pins):
    first, _ = put(live, 0, b"old"), put(live, 100)
    pins.refresh(NONE, NONE)
    first.unlink()
    found = pins.refresh(NONE, NONE)
    assert offsets(found) == [0, 100]
    assert found[0].path.read_bytes() == b"old"


def test_what_is_appended_shows_in_the_pin(live, pins):
    path = put(live, 0, b"one")
    pins.refresh(NONE, NONE)
    with path.open("ab") as file:
        file.write(b" two")
    assert pins.refresh(NONE, NONE)[0].path.read_bytes() == b"one two"


def test_a_segment_that_is_gone_while_an_older_one_is_there_stays_pinned(live, pins):
    """Osiris deletes the newer ones first, by max-length-bytes, and those of a deleted stream in any order."""
    for offset in (0, 100, 200, 300):
        put(live, offset)
    pins.refresh(NONE, NONE)
    (live / f"{200:020}.segment").unlink()
    found = pins.refresh(NONE, NONE)
    assert [(pin.first_offset, pin.is_live) for pin in found] == [(0, True), (100, True), (200, False), (300, True)]


def test_a_file_that_was_replaced_is_pinned_anew(live, pins):
    path = put(live, 0, b"never committed")
    pins.refresh(NONE, NONE)
    path.unlink()
    put(live, 0, b"committed")
    assert pins.refresh(NONE, NONE)[0].path.read_bytes() == b"committed"


def test_a_committed_pin_makes_room_for_a_replica_made_anew_only_once_that_has_as_much(live, pins):
    path = put(live, 0, b"committed long ago")
    pins.refresh(NONE, NONE)
    path.unlink()
    put(live, 0, b"committed")
    (kept,) = pins.refresh(NONE, Offset(50))
    assert (kept.path.read_bytes(), kept.is_live, kept.is_active) == (b"committed long ago", False, False)
    put(live, 0, b"committed long ago, and more")
    (pin,) = pins.refresh(NONE, Offset(50))
    assert (pin.path.read_bytes(), pin.is_live, pin.is_active) == (b"committed long ago, and more", True, True)


def test_a_file_that_cannot_be_pinned_keeps_no_other_from_it(live, pins, monkeypatch):
    link = os.link

    def picky(source: Path, target: Path) -> None:
        if source.name.startswith(f"{100:020}"):
            raise OSError(errno.EMLINK, "Too many links")
        link(source, target)

    monkeypatch.setattr(os, "link", picky)
    for offset in (0, 100, 200):
        put(live, offset)
    assert offsets(pins.refresh(NONE, NONE)) == [0, 200]
    assert pins.failure is not None
    monkeypatch.setattr(os, "link", link)
    assert offsets(pins.refresh(NONE, NONE)) == [0, 100, 200]
    assert pins.failure is None


def test_what_is_archived_is_not_pinned_again(live, pins):
    for offset in (0, 100, 200):
        put(live, offset)
    assert offsets(pins.refresh(Offset(100), NONE)) == [100, 200]
    for pin in pins.refresh(Offset(100), NONE)[:1]:
        pins.release(pin)
    assert offsets(pins.refresh(Offset(200), NONE)) == [200]
    assert sorted(path.name for path in live.glob("*.segment")) == [f"{at:020}.segment" for at in (0, 100, 200)]


def test_a_stream_that_was_deleted_keeps_its_pins_and_none_is_active(live, pins):
    put(live, 0)
    pins.refresh(NONE, NONE)
    for path in live.iterdir():
        path.unlink()
    live.rmdir()
    assert [(pin.first_offset, pin.is_active) for pin in pins.refresh(NONE, NONE)] == [(0, False)]
    assert not pins.is_live


def test_without_the_brokers_directory_nothing_is_said_of_a_stream(live, pins):
    live.rmdir()
    live.parent.rmdir()
    with pytest.raises(UnavailableError, match="data directory is gone"):
        _ = pins.is_live


def test_space_tells_what_is_kept_for_the_pins_alone(live, pins):
    first = put(live, 0, b"12345")
    put(live, 100, b"123")
    pins.refresh(NONE, NONE)
    assert pins.space() == PinSpace(2, 8, 0)
    first.unlink()
    assert pins.space() == PinSpace(2, 8, 5)


def test_other_files_are_left_alone(live, pins):
    put(live, 0)
    (live / "notes.txt").write_text("mine")
    (live / "123.segment").write_text("not a broker's name")
    assert offsets(pins.refresh(NONE, NONE)) == [0]
    assert sorted(path.name for path in pins.directory.iterdir()) == [f"{0:020}.segment"]


def test_links_are_tried_before_the_agent_begins(live, tmp_path):
    put(live, 0)
    check_links(live.parent, tmp_path / "state" / "pins")
    assert list((tmp_path / "state" / "pins").iterdir()) == []


def test_another_file_system_is_refused_with_what_to_do(live, tmp_path, monkeypatch):
    put(live, 0)
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "Operation not permitted")))
    with pytest.raises(InvalidSettingError, match="run as the broker's user"):
        check_links(live.parent, tmp_path / "state" / "pins")
