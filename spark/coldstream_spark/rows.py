"""Chunks into record batches: runs of plain messages at once, all others message by message."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.errors import CorruptionError
from coldstream.format.amqp_json import to_json
from coldstream.format.amqp_types import Timestamp, Value
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.message import Message, messages
from coldstream.format.sections import Properties
from coldstream.serve.scan import Slice
from coldstream_spark.plain import find_values, take_values
from coldstream_spark.schema import PROPERTIES, arrow_schema

BATCH_ROWS = 1 << 16
_MOST_US = (1 << 63) - 1
_ROUTING_KEY = "x-routing-key"


@dataclass(slots=True)
class _Run:
    """Consecutive rows of one kind. Offsets are kept as first ones and counts, times once a chunk."""

    firsts: list[tuple[int, int]] = field(default_factory=list)
    times: array[int] = field(default_factory=lambda: array("q"))
    bounds: array[int] = field(default_factory=lambda: array("i"))
    messages: list[Message] = field(default_factory=list)

    def add(self, first: int, count: int, time_ms: int) -> None:
        self.times.extend(array("q", (time_ms * 1000,)) * count)
        if self.firsts and sum(self.firsts[-1]) == first:
            before, rows = self.firsts[-1]
            self.firsts[-1] = before, rows + count
        else:
            self.firsts.append((first, count))


def batches(part: Slice, chunks: Iterable[Chunk], stream: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield what is wanted of a slice, of some of its chunks, as batches of these columns, in order.

    Raises CorruptionError where entries or sub-batches are not what the headers say.
    """
    schema = arrow_schema(columns)
    is_opened = not _DECODERS.keys().isdisjoint(columns)
    run, memory, memory_starts = _Run(), b"", 0
    for chunk in chunks:
        header = chunk.header
        if header.type is not ChunkType.USER:
            continue
        if chunk.data.obj is not memory:
            yield from _finish(run, memory, stream, schema)
            run, memory = _Run(), cast("bytes", chunk.data.obj)
            memory_starts = pa.py_buffer(memory).address
        first, end = max(header.chunk_id, part.start), min(header.next_offset, part.end)
        if not is_opened:  # all that is wanted stands in the header
            run.add(first, end - first, header.timestamp)
            continue
        bounds = find_values(chunk, memory, pa.py_buffer(chunk.data).address - memory_starts)
        if (bounds is None and run.bounds) or (bounds is not None and run.messages):
            yield from _finish(run, memory, stream, schema)
            run = _Run()
        if bounds is not None:
            if end - first < header.records:
                bounds = bounds[2 * (first - header.chunk_id) : 2 * (end - header.chunk_id)]
            run.bounds.extend(bounds)
        else:
            found = messages(chunk, source=part.key, from_offset=part.start)
            run.messages.extend(message for message in found if message.offset < end)
        run.add(first, end - first, header.timestamp)
    yield from _finish(run, memory, stream, schema)


def _finish(run: _Run, memory: bytes, stream: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a run as batches."""
    rows = len(run.times)
    if not rows:
        return
    made: dict[str, pa.Array] = {}
    if run.messages:
        decoded = [name for name in schema.names if name in _DECODERS]
        contents = [_contents(message, decoded) for message in run.messages]
        for number, name in enumerate(decoded):
            made[name] = pa.array([content[number] for content in contents], schema.field(name).type)
    elif "value" in schema.names:
        made["value"] = take_values(run.bounds, memory)
    if "stream" in schema.names:
        made["stream"] = pa.repeat(pa.scalar(stream, pa.string()), rows)
    if "offset" in schema.names:
        made["offset"] = _offsets(run.firsts)
    if "chunk_timestamp" in schema.names:
        kind = schema.field("chunk_timestamp").type
        made["chunk_timestamp"] = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(run.times)])
    arrays = [made[column.name] if column.name in made else pa.nulls(rows, column.type) for column in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for at in range(0, rows, BATCH_ROWS):
        yield batch.slice(at, BATCH_ROWS)


def _offsets(firsts: Sequence[tuple[int, int]]) -> pa.Array:
    one = pa.scalar(1, pa.int64())
    return pa.concat_arrays(
        [pc.cumulative_sum(pa.repeat(one, count), start=pa.scalar(first - 1, pa.int64())) for first, count in firsts]
    )


def _contents(message: Message, columns: Sequence[str]) -> list[Value]:
    """Decode some columns of a message; of one that is not AMQP, or damaged, the value is all there is of it."""
    try:
        return [_DECODERS[column](message) for column in columns]
    except CorruptionError:
        return [message.raw if column == "value" else None for column in columns]


def _value(message: Message) -> bytes | None:
    body = message.body
    if body is None or type(body) is bytes:
        return body
    return body.encode() if isinstance(body, str) else _as_json(body).encode()


def _properties(message: Message) -> dict[str, Value] | None:
    found = message.properties
    if found is None:
        return None
    return {
        name: None if value is None else _FIELDS[kind](value)
        for (name, (_, kind)), value in zip(PROPERTIES.items(), found, strict=True)
    }


def _creation_time(message: Message) -> int | None:
    found: Properties | None = message.properties
    return None if found is None or found.creation_time is None else _time(found.creation_time)


def _routing_key(message: Message) -> str | None:
    for pairs, key in ((message.message_annotations, _ROUTING_KEY), (message.application_properties, "routing_key")):
        if pairs is not None and pairs.get(key) is not None:
            return _text(pairs[key])
    return None


def _pairs(found: dict[Value, Value] | None) -> list[tuple[str, str | None]] | None:
    if found is None:
        return None
    # Keys that differ in type alone are one here.
    return list({_text(key): None if value is None else _text(value) for key, value in found.items()}.items())


def _text(value: Value) -> str:
    """Return text as it is, bytes as text where they are UTF-8, and anything else as the JSON of it."""
    if isinstance(value, str):
        return str(value)
    shown = to_json(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _as_json(value: Value) -> str:
    return json.dumps(to_json(value), ensure_ascii=False)


def _time(value: Value) -> int | None:
    """Return microseconds; None for what is no timestamp, or one beyond Spark's years."""
    if not isinstance(value, Timestamp) or abs(value) * 1000 > _MOST_US:
        return None
    return value * 1000


def _binary(value: Value) -> bytes:
    return bytes(value) if isinstance(value, bytes) else _text(value).encode()


def _whole(value: Value) -> int | None:
    return value if type(value) is int and abs(value) <= _MOST_US else None


_FIELDS: dict[pa.DataType, Callable[[Value], Value]] = {
    pa.string(): _text,
    pa.binary(): _binary,
    pa.int64(): _whole,
    pa.timestamp("us", tz="UTC"): _time,
}
_DECODERS: dict[str, Callable[[Message], Value]] = {
    "value": _value,
    "properties": _properties,
    "application_properties": lambda message: _pairs(message.application_properties),
    "message_annotations": lambda message: _pairs(message.message_annotations),
    "creation_time": _creation_time,
    "routing_key": _routing_key,
}
