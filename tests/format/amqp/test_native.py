"""The native module reads messages as Python does, whatever is in them."""

from __future__ import annotations

import copy
import gzip
import math
import pickle
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from coldstream.errors import BadLengthError, CorruptionError
from coldstream.format.amqp import message as module
from coldstream.format.amqp.message import Message, in_place_of, messages_in_python, native_messages
from coldstream.format.amqp.types import Described
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.native import NATIVE
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.native import native_module
from tests.support.random_messages import FIRST, random_chunk

CHUNKS = 800
NAMES = (
    "body",
    "body_kind",
    "header",
    "delivery_annotations",
    "message_annotations",
    "properties",
    "application_properties",
    "footer",
)


def told(value: Any) -> Any:
    """Return a value in which types count, and a NaN is itself."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, dict):
        return dict, [(told(key), told(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [told(item) for item in value]
    if isinstance(value, Described):
        return Described, told(value.descriptor), told(value.value)
    return type(value), value


def contents(message: Message) -> list[Any]:
    found: list[Any] = [message.offset, message.timestamp, message.source, message.raw, repr(message)]
    for name in NAMES:
        try:
            found.append(told(getattr(message, name)))
        except CorruptionError as err:
            found.append((type(err), str(err)))
    return [*found, message.to_dict()]


def all_of(found: Iterator[Message]) -> list[Any]:
    out: list[Any] = []
    try:
        out.extend(contents(message) for message in found)
    except CorruptionError as err:
        out.append((type(err), str(err)))
    return out


@pytest.mark.parametrize("block", range(4))
def test_messages_and_errors_of_random_and_damaged_chunks_are_those_of_python(block: int) -> None:
    in_rust = native_messages(native_module())
    for seed in range(block * CHUNKS // 4, (block + 1) * CHUNKS // 4):
        chunk = random_chunk(Random(seed))
        from_offset = Offset(FIRST + Random(seed).choice((-5, 0, 0, 0, 1, 3, 8, 20)))
        if chunk.header.next_offset > from_offset:
            expected = all_of(messages_in_python(chunk, "källa", from_offset))
            assert all_of(in_rust(chunk, "källa", from_offset)) == expected, f"seed {seed}"


@pytest.mark.parametrize("damage", [b"", b"what gzip never writes"])
@pytest.mark.parametrize("from_offset", range(5))
def test_an_empty_sub_batch_between_messages_is_looked_into_by_python(from_offset: int, damage: bytes) -> None:
    empty = SubBatch(Compression.GZIP, 0, 0, memoryview(damage or gzip.compress(b"")), 0)
    chunk = chunk_of(b"one", make_sub_batch([b"two", b"three"], Compression.GZIP), empty, b"four")
    expected = all_of(messages_in_python(chunk, "källa", Offset(from_offset)))
    assert all_of(native_messages(native_module())(chunk, "källa", Offset(from_offset))) == expected


@pytest.mark.parametrize("changes", [{"entries": 2}, {"entries": 4}, {"records": 2}, {"records": 4}])
def test_what_a_header_counts_wrongly_is_told_after_the_messages_before_it(changes: dict[str, int]) -> None:
    chunk = chunk_of(b"one", b"two", b"three")
    chunk = replace(chunk, header=replace(chunk.header, **changes))
    found = native_messages(native_module())(chunk, "källa", Offset(0))
    assert [next(found).raw, next(found).raw] == [b"one", b"two"]
    expected = all_of(messages_in_python(chunk, "källa", Offset(0)))
    assert all_of(native_messages(native_module())(chunk, "källa", Offset(0))) == expected
    assert isinstance(expected[-1], tuple)


def test_messages_are_read_from_memory_as_they_are_given() -> None:
    """What comes later may be damaged: the messages before it do not wait until all of it is looked at."""
    chunk = chunk_of(b"one", b"two")
    cut = replace(chunk, data=chunk.data[:-1])
    found = native_messages(native_module())(cut, "källa", Offset(0))
    assert isinstance(next(found), native_module().NativeMessage)
    with pytest.raises(BadLengthError):
        next(found)


def chunk_of(*entries: bytes | SubBatch) -> Chunk:
    _, data = make_chunk(entries, chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(1))
    (chunk,) = iter_chunks(data, source="källa")
    return chunk


def test_a_native_message_is_a_message_and_survives_copies() -> None:
    chunk = random_chunk(Random(3))
    for message in native_messages(native_module())(chunk, "källa", Offset(0)):
        assert isinstance(message, Message)
        for copied in (pickle.loads(pickle.dumps(message)), copy.copy(message)):
            assert contents(copied) == contents(message)
        assert in_place_of(message, b"other").raw == b"other"
        assert not {name for name in dir(Message) if not name.startswith("_")} - {*dir(message)}


def test_the_native_module_is_what_reads_messages_where_it_is_installed() -> None:
    native_module()
    assert module._messages is not messages_in_python
    assert NATIVE is not None


def test_another_release_of_the_native_module_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from coldstream.format import native  # noqa: PLC0415

    native_module()
    assert native.load_native() is NATIVE
    monkeypatch.setattr(native, "CONTRACT", native.CONTRACT + 1)
    assert native.load_native() is None
