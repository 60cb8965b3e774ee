"""A recorded change comes back exactly, whatever it writes."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import get_args

import pytest

from coldstream.errors import BadLengthError, BadVersionError, CorruptionError
from coldstream.manifest import recorded as module
from coldstream.manifest.change import (
    Write,
)
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.entry import (
    Head,
)
from coldstream.manifest.recorded import change_of, recorded
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.manifest.recorded_samples import HEADS, WRITES, change_of_writes
from tests.manifest.world import AT, STREAM, entry


def test_every_kind_of_write_is_tried() -> None:
    assert {type(write) for write in WRITES} == set(get_args(Write))


@pytest.mark.parametrize("write", WRITES, ids=lambda write: type(write).__name__)
def test_a_write_comes_back_exactly(write: Write) -> None:
    change = change_of_writes((write,))
    assert change_of(STREAM, change.event, recorded(change)) == change


@pytest.mark.parametrize("head", HEADS)
def test_a_head_comes_back_exactly_with_all_writes_at_once(head: Head) -> None:
    change = change_of_writes(WRITES, head)
    found = change_of(STREAM, change.event, recorded(change))
    assert found == change
    assert [type(write) for write in found.writes] == [type(write) for write in change.writes]


def test_the_event_of_a_commit_of_64_mib_fits_into_a_kilobyte() -> None:
    points = tuple(
        SparsePoint(
            ChunkId(6007 * n), 31 * n, 8 + 1_060_000 * n, TimestampMs(AT + 1999 * n), TimestampMs(AT + 1999 * n)
        )
        for n in range(64)
    )
    new = replace(
        entry(0, 400_000, time=AT), sparse=SparseIndex(points), data_bytes=67_108_864, object_bytes=67_200_000
    )
    change = plan_commit(Neighbourhood(Head(STREAM, 4711, Offset(0), Offset(0))), new, AT)
    # The item's other attributes, with their names, take about 220 bytes.
    assert len(recorded(change)) < 1024 - 220


def test_damaged_bytes_are_corruption() -> None:
    change = change_of_writes(WRITES)
    data = recorded(change)
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            change_of(STREAM, change.event, data[:length])
    with pytest.raises(BadLengthError, match="binary contents"):
        change_of(STREAM, change.event, data[:-1])
    with pytest.raises(CorruptionError):
        change_of(STREAM, change.event, data + b"\0")
    with pytest.raises(CorruptionError):
        change_of(STREAM, replace(change.event, key="another"), data)
    with pytest.raises(BadVersionError):
        change_of(STREAM, change.event, b"\x02" + data[1:])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"[]", CorruptionError),
        (b'{"head":{}}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutComet",{}]]}', BadVersionError),
        (b'{"head":{"revision":8},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7,"comet":1},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutGap",{"gap":{"comet":1}}]]}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutGap"]]}', CorruptionError),
        (b'{"head":{"revision":7,"appender":7},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7,"appender":{"epoch":1}},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutEntry",{"entry":{"sparse":1}}]]}', CorruptionError),
    ],
)
def test_what_is_no_change_is_corruption(text: bytes, error: type[CorruptionError]) -> None:
    change = change_of_writes(())
    packer = zlib.compressobj(zdict=module._dictionary(STREAM, change.event))
    with pytest.raises(error):
        change_of(STREAM, change.event, b"\x01" + packer.compress(text) + packer.flush() + b"\x01")


def test_what_inflates_without_end_is_refused() -> None:
    change = change_of_writes(())
    packer = zlib.compressobj(zdict=module._dictionary(STREAM, change.event))
    with pytest.raises(CorruptionError):
        change_of(STREAM, change.event, b"\x01" + packer.compress(b" " * (40 << 20)) + packer.flush())
