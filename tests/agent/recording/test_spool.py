"""The spool of segments that the agent writes itself."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coldstream.agent.recording.recorded_chunk import tracking_fillers
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.units import Offset
from tests.support.stream_broker import chunk, header_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

FIRST, SECOND = chunk(100, b"a", b"b"), chunk(102, b"c" * 50)
NAME = f"{100:020}.segment"


@pytest.fixture
def spool(tmp_path: Path) -> SegmentSpool:
    made = SegmentSpool(tmp_path)
    made.recover()
    return made


def test_a_segment_gets_its_name_when_it_is_closed(spool: SegmentSpool, tmp_path: Path) -> None:
    spool.append(FIRST, Offset(100), Offset(102))
    spool.append(SECOND, Offset(102), Offset(103))
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.part"]
    assert spool.open_bytes == spool.size_bytes() == 8 + len(FIRST) + len(SECOND)
    closed = spool.close_segment()
    assert closed is not None
    assert (closed.path, closed.first_offset, closed.next_offset) == (tmp_path / NAME, 100, 103)
    assert (tmp_path / NAME).read_bytes() == SEGMENT_HEADER + FIRST + SECOND
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert spool.open_bytes == 0
    assert spool.close_segment() is None


def test_the_next_segment_is_counted_with_those_that_are_still_there(spool: SegmentSpool, tmp_path: Path) -> None:
    spool.append(FIRST, Offset(100), Offset(102))
    spool.close_segment()
    spool.append(SECOND, Offset(102), Offset(103))
    assert spool.size_bytes() == 16 + len(FIRST) + len(SECOND)
    (tmp_path / NAME).unlink()
    assert spool.size_bytes() == spool.open_bytes == 8 + len(SECOND)
    spool.abandon()


def test_what_is_archived_while_it_is_counted_counts_no_more(spool: SegmentSpool, tmp_path: Path) -> None:
    (tmp_path / f"{90:020}.segment").symlink_to("gone")
    spool.append(FIRST, Offset(100), Offset(102))
    spool.close_segment()
    assert spool.size_bytes() == 8 + len(FIRST)


def test_what_is_written_in_pieces_is_written_whole(
    spool: SegmentSpool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FileIO):
        def write(self, data: Buffer) -> int:
            return super().write(memoryview(data)[:7])

    monkeypatch.setattr("coldstream.agent.recording.spool.FileIO", Slow)
    spool.append(FIRST, Offset(100), Offset(102))
    spool.close_segment()
    assert (tmp_path / NAME).read_bytes() == SEGMENT_HEADER + FIRST


@pytest.mark.parametrize("length", range(len(SEGMENT_HEADER + FIRST + SECOND) + 1))
def test_a_segment_cut_anywhere_is_closed_behind_its_last_whole_chunk(tmp_path: Path, length: int) -> None:
    whole = SEGMENT_HEADER + FIRST + SECOND
    (tmp_path / f"{NAME}.part").write_bytes(whole[:length])
    found = SegmentSpool(tmp_path).recover()
    kept = 2 if length == len(whole) else int(length >= len(SEGMENT_HEADER + FIRST))
    if not kept:
        assert (found.closed, found.last) == ((), None)
        assert list(tmp_path.iterdir()) == []
        return
    (closed,) = found.closed
    assert closed.path.read_bytes() == (whole if kept == 2 else SEGMENT_HEADER + FIRST)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert found.last is not None
    assert closed.next_offset == found.last.next_offset == (103 if kept == 2 else 102)


def test_what_does_not_match_its_crc_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(SEGMENT_HEADER + FIRST + SECOND[:-1] + b"!")
    (closed,) = SegmentSpool(tmp_path).recover().closed
    assert closed.path.read_bytes() == SEGMENT_HEADER + FIRST


TRACKING = b"".join(tracking_fillers(header_of(chunk(105, b"d")), Offset(103)))


def test_tracking_chunks_at_the_end_are_cut_off_for_they_are_made_anew(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(SEGMENT_HEADER + FIRST + SECOND + TRACKING)
    found = SegmentSpool(tmp_path).recover()
    assert [closed.next_offset for closed in found.closed] == [103]
    assert found.last == header_of(SECOND)
    assert (tmp_path / NAME).read_bytes() == SEGMENT_HEADER + FIRST + SECOND


def test_a_segment_of_tracking_chunks_alone_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"{103:020}.segment.part").write_bytes(SEGMENT_HEADER + TRACKING)
    found = SegmentSpool(tmp_path).recover()
    assert (found.closed, found.last) == ((), None)
    assert list(tmp_path.iterdir()) == []


def test_of_a_closed_segment_the_last_user_chunk_is_found(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(SEGMENT_HEADER + FIRST + SECOND + TRACKING)
    assert SegmentSpool(tmp_path).recover().last == header_of(SECOND)


def test_a_directory_that_is_made_and_a_name_that_is_given_outlive_a_crash_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, list[str]]] = []

    def fsync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced.append((path, sorted(there.name for there in path.iterdir()) if path.is_dir() else []))

    monkeypatch.setattr("coldstream.agent.recording.spool.os.fsync", fsync)
    directory = tmp_path / "incarnation"
    made = SegmentSpool(directory)
    made.recover()
    made.append(FIRST, Offset(100), Offset(102))
    made.close_segment()
    (directory / f"{102:020}.segment.part").write_bytes(SEGMENT_HEADER + SECOND + FIRST)
    assert made.recover().closed
    assert synced[3:] == [
        (tmp_path, ["incarnation"]),
        (directory / f"{102:020}.segment.part", []),
        (directory, [NAME, f"{102:020}.segment"]),
    ]
    assert synced[:3] == [(tmp_path, ["incarnation"]), (directory / f"{NAME}.part", []), (directory, [NAME])]


def test_the_last_chunk_of_closed_segments_is_found(spool: SegmentSpool, tmp_path: Path) -> None:
    spool.append(FIRST, Offset(100), Offset(102))
    spool.close_segment()
    spool.append(SECOND, Offset(102), Offset(103))
    spool.close_segment()
    found = SegmentSpool(tmp_path).recover()
    assert found.closed == ()
    assert found.last is not None
    assert found.last.chunk_id == 102


def test_a_segment_that_is_let_go_while_it_is_looked_at_hides_no_other(spool: SegmentSpool, tmp_path: Path) -> None:
    spool.append(FIRST, Offset(100), Offset(102))
    spool.close_segment()
    (tmp_path / f"{102:020}.segment").symlink_to("gone")
    assert SegmentSpool(tmp_path).recover().last == header_of(FIRST)
