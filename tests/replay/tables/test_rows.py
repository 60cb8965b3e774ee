"""Messages as rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from rstream._pyamqp.message import Properties

from coldstream.format.chunk import iter_chunks
from coldstream.format.message import Message, messages
from coldstream.format.writer import make_chunk
from coldstream.replay.tables.rows import SCHEMA, Row, json_line, to_rows, transformed
from coldstream.units import MAX_TIMESTAMP_MS, ChunkId, Epoch, TimestampMs
from tests.support.amqp_samples import MESSAGES, encode, typed

TIME = 1_763_700_000_123


def read(*published: bytes, timestamp: int = TIME) -> list[Message]:
    _, data = make_chunk(published, chunk_id=ChunkId(40), timestamp=TimestampMs(timestamp), epoch=Epoch(1))
    (chunk,) = iter_chunks(data, source="test")
    return list(messages(chunk, source="test"))


def rows(*published: bytes) -> list[Row]:
    found = to_rows(read(*published), "orders")
    assert found.schema == SCHEMA
    return list(found.to_pylist(maps_as_pydicts="strict"))


def test_a_message_of_data_is_a_value_and_where_it_is_from() -> None:
    first, second = rows(encode(body=b"one"), encode(body=b"two"))
    nothing = dict.fromkeys(SCHEMA.names)
    moment = datetime(2025, 11, 21, 4, 40, 0, 123_000, UTC)
    assert first == nothing | {"value": b"one", "stream": "orders", "offset": 40, "chunk_timestamp": moment}
    assert (second["value"], second["offset"]) == (b"two", 41)


def test_properties_and_annotations_are_columns() -> None:
    (row,) = rows(
        encode(
            body=b"x",
            properties=Properties(message_id=7, user_id=b"me", subject=b"s", creation_time=TIME, group_sequence=9),
            application_properties={"text": "ä", "number": 5, "truth": True, "nothing": None, "bytes": b"b"},
            message_annotations={b"x-routing-key": "a.b", b"x-exchange": "e"},
        )
    )
    properties = {name: value for name, value in row["properties"].items() if value is not None}
    moment = datetime(2025, 11, 21, 4, 40, 0, 123_000, UTC)
    assert properties == {
        "message_id": "7",
        "user_id": b"me",
        "subject": "s",
        "creation_time": moment,
        "group_sequence": 9,
    }
    assert row["creation_time"] == moment
    assert row["application_properties"] == {
        "text": "ä",
        "number": "5",
        "truth": "true",
        "nothing": None,
        "bytes": "b",
    }
    assert row["message_annotations"] == {"x-routing-key": "a.b", "x-exchange": "e"}
    assert row["routing_key"] == "a.b"


def test_a_routing_key_may_be_a_property_of_the_publishers_own() -> None:
    (row,) = rows(encode(body=b"x", application_properties={"routing_key": "eu"}))
    assert row["routing_key"] == "eu"


def test_bodies_of_other_kinds_are_text_or_json() -> None:
    found = rows(encode(value="grün"), encode(value={"a": [1]}), MESSAGES["sequence"], encode(value=None))
    assert [row["value"] for row in found] == ["grün".encode(), b'{"a": [1]}', b'[1, "two", null]', None]


@pytest.mark.parametrize("published", [b"no AMQP", encode(body=b"x")[:-1] + b"", b"\x00\x53\x73\xc0\x02\x01\xff"])
def test_what_is_not_amqp_or_damaged_is_a_value_and_nothing_else(published: bytes) -> None:
    (row,) = rows(published[:-1])
    assert row["value"] == published[:-1]
    assert row["properties"] is None


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_kind_of_message_is_a_row_and_a_line(name: str) -> None:
    (row,) = rows(MESSAGES[name])
    line = json_line(row)
    assert line.endswith(b"\n")
    assert json.loads(line)["offset"] == 40


def test_a_time_that_no_calendar_reaches_is_null() -> None:
    found = to_rows(read(encode(body=b"x"), timestamp=MAX_TIMESTAMP_MS), "orders")
    assert found.column("chunk_timestamp").to_pylist() == [None]
    absurd = Properties(creation_time=typed("TIMESTAMP", MAX_TIMESTAMP_MS))
    assert rows(encode(body=b"x", properties=absurd))[0]["creation_time"] is None


def test_no_messages_are_no_rows() -> None:
    assert to_rows([], "orders").num_rows == 0


def test_a_line_has_bytes_as_text_or_in_base64() -> None:
    text, binary = rows(encode(body="é".encode()), encode(body=b"\xff"))
    common = {"stream": "orders", "chunk_timestamp": "2025-11-21T04:40:00.123Z"}
    assert json.loads(json_line(text)) == {"value": "é", "offset": 40} | common
    assert json.loads(json_line(binary)) == {"value_base64": "/w==", "offset": 41} | common


def test_a_transformation_changes_rows_and_leaves_some_out() -> None:
    found = to_rows(read(encode(body=b"one"), encode(body=b"two", application_properties={"k": "v"})), "orders")

    def second(row: Row) -> Row | None:
        if row["value"] == b"one":
            return None
        return row | {"value": row["value"].upper(), "application_properties": {"n": "1"}, "offset": 0, "stream": "x"}

    made = transformed(found, second)
    assert made.schema == SCHEMA
    (row,) = made.to_pylist(maps_as_pydicts="strict")
    assert (row["value"], row["application_properties"]) == (b"TWO", {"n": "1"})
    assert (row["stream"], row["offset"]) == ("orders", 41)
    assert transformed(found, lambda _: None).num_rows == 0


def test_a_transformation_that_makes_no_row_is_an_error() -> None:
    with pytest.raises((TypeError, pa.ArrowInvalid)):
        transformed(to_rows(read(encode(body=b"one")), "orders"), lambda row: row | {"value": object()})
