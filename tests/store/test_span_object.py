"""Objects of the recovery log: to bytes and back, at every cut, and with every byte wrong."""

from __future__ import annotations

import pytest

from coldstream.errors import BadCrcError, BadLengthError, CorruptionError, TruncatedError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.recovery_log import read_run, read_span_header
from coldstream.store.span_object import (
    FIXED_BYTES,
    LoggedRun,
    check_run,
    header_bytes_of,
    parse_header,
    span_object,
)
from coldstream.units import Offset

ORDERS = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
OTHER = StreamId("größe", "заказы/№1", Incarnation("gr_e_1763700000000000001"))
RUNS = [
    LoggedRun(ORDERS, Offset(0), Offset(10), b"x" * 100),
    LoggedRun(OTHER, Offset(2**40), Offset(2**40 + 1), b"y"),
    LoggedRun(ORDERS, Offset(10), Offset(11), b"z" * 7),
]


def test_runs_come_back_in_order_each_with_its_bytes() -> None:
    body = span_object(RUNS)
    header = parse_header(body, source="a key")
    assert header.object_bytes == len(body)
    for run, entry in zip(RUNS, header.entries, strict=True):
        data = body[entry.byte_range.start : entry.byte_range.end]
        check_run(data, entry, source="a key")
        assert LoggedRun(entry.stream, entry.first_offset, entry.next_offset, data) == run


def test_an_object_of_no_runs_has_a_header_alone() -> None:
    body = span_object([])
    assert parse_header(body, source="a key").object_bytes == len(body) == FIXED_BYTES + 4


@pytest.mark.parametrize("length", range(len(span_object(RUNS)) - 108))
def test_a_header_that_is_cut_short_is_told(length: int) -> None:
    with pytest.raises(TruncatedError):
        parse_header(span_object(RUNS)[:length], source="a key")


def test_a_wrong_byte_anywhere_in_the_header_is_told_with_its_place() -> None:
    body = span_object(RUNS)
    for at in range(header_bytes_of(body, source="a key")):
        wrong = body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :]
        with pytest.raises(CorruptionError, match="a key"):
            parse_header(wrong, source="a key")


def test_a_wrong_byte_in_a_run_is_told_and_a_short_run_too() -> None:
    body = span_object(RUNS)
    entry = parse_header(body, source="a key").entries[0]
    data = body[entry.byte_range.start : entry.byte_range.end]
    with pytest.raises(BadCrcError):
        check_run(b"w" + data[1:], entry, source="a key")
    with pytest.raises(TruncatedError):
        check_run(data[:-1], entry, source="a key")


def test_a_header_longer_than_its_entries_can_be_is_refused_before_it_is_read() -> None:
    body = bytearray(span_object(RUNS))
    body[12:16] = (1 << 31).to_bytes(4, "big")
    with pytest.raises(BadLengthError):
        header_bytes_of(bytes(body), source="a key")


def test_a_long_header_takes_two_reads() -> None:
    many = [LoggedRun(OTHER, Offset(at), Offset(at + 1), b"y") for at in range(5000)]
    objects = MemoryObjects()
    objects.put("a key", span_object(many))
    header = read_span_header(objects, "a key")
    assert len(header.entries) == 5000
    assert read_run(objects, "a key", header.entries[-1]) == many[-1]
