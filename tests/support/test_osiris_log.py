"""The oracle answers as osiris does: on logs small enough to see that for oneself."""

from __future__ import annotations

import pytest

from tests.support.osiris import Batch, ChunkToWrite, Crash, OsirisError

TRACKING_DELTA = 1


@pytest.fixture
def log(osiris, tmp_path):
    """Chunks 0 (2 records), 2 (3) · 5 (tracking), 6 (1), in two segments."""
    log = osiris(tmp_path / "log")
    log.write(
        [
            ChunkToWrite([b"a", b"b"], 1000),
            ChunkToWrite([Batch(2, 4, 99, b"packed"), b""], 1010, trailer=b"trailer"),
            ChunkToWrite([b"tracking"], 1010, type=TRACKING_DELTA, epoch=2),
            ChunkToWrite([b"c"], 1020, epoch=2),
        ],
        max_segment_chunks=2,
    )
    return log


def test_it_attaches_before_skipping_tracking_chunks(log):
    specs = ["first", "last", "next", "0", "1", "2", "4", "5", "6", "7", "99"]
    assert log.attach(specs) == [0, 6, 7, 0, 0, 2, 2, 5, 6, 7, 7]


def test_it_attaches_by_timestamp_in_the_newest_segment_that_can_hold_it(log):
    specs = [f"timestamp:{timestamp}" for timestamp in (0, 1000, 1001, 1010, 1011, 1020, 1021)]
    assert log.attach(specs) == [0, 0, 2, 5, 6, 6, 7]


def test_it_gives_the_header_of_every_chunk(log):
    first, second, tracking, last = log.chunks()
    assert (first.chunk_id, first.type, first.records, first.entries, first.position) == (0, 0, 2, 2, 8)
    assert (second.chunk_id, second.records, second.entries, second.trailer_bytes) == (2, 3, 2, 7)
    assert (tracking.chunk_id, tracking.type, tracking.epoch, tracking.position) == (5, TRACKING_DELTA, 2, 8)
    assert (last.chunk_id, last.timestamp) == (6, 1020)
    assert log.range() == (0, 6)


def test_a_question_that_makes_osiris_crash_is_told_from_an_answer(log):
    assert log.attach(["first", "nonsense", "last"]) == [0, Crash("badarg"), 6]


def test_where_a_clock_ran_backwards_it_may_skip_a_later_chunk(osiris, tmp_path):
    log = osiris(tmp_path / "log")
    log.write([ChunkToWrite([b"a"], timestamp) for timestamp in (5000, 1000)])
    assert log.attach(["timestamp:2000", "timestamp:1000"]) == [2, 0]


def test_a_damaged_chunk_is_an_error(log):
    segment = log.directory / f"{0:020}.segment"
    content = bytearray(segment.read_bytes())
    content[60] ^= 1
    segment.write_bytes(content)
    with pytest.raises(OsirisError, match="crc_validation_failure"):
        log.chunks()


def test_a_log_without_chunks_has_no_range(osiris, tmp_path):
    (tmp_path / "empty").mkdir()
    assert osiris(tmp_path / "empty").range() is None
