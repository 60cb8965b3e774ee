"""What the columns have of each kind of message."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from rstream._pyamqp.message import Properties

from coldstream.replay.tables.lines import json_lines
from coldstream.replay.tables.row_transform import Row, iter_dicts
from coldstream.rows.schema import SCHEMA
from coldstream.units import MAX_TIMESTAMP_MS
from tests.support.amqp_samples import MESSAGES, encode, typed
from tests.support.rows import TIME, as_rows

pytestmark = pytest.mark.usefixtures("decoding")


def rows(*published: bytes) -> list[Row]:
    found = as_rows(*published)
    assert found.schema == SCHEMA
    return list(iter_dicts(found))


def test_a_plain_message_is_a_value_with_its_stream_offset_and_time() -> None:
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
    null = b"\x00\x53\x77\x40"
    found = rows(encode(value="grün"), encode(value={"a": [1]}), MESSAGES["sequence"], null)
    assert [row["value"] for row in found] == ["grün".encode(), b'{"a": [1]}', b'[1, "two", null]', None]


def test_an_empty_message_is_an_empty_value_and_one_without_a_body_is_null() -> None:
    found = rows(b"", encode(body=b"x"), encode(application_properties={"k": "v"}))
    assert [row["value"] for row in found] == [b"", b"x", None]


@pytest.mark.parametrize("published", [b"no AMQP", encode(body=b"x")[:-1] + b"", b"\x00\x53\x73\xc0\x02\x01\xff"])
def test_a_message_that_is_damaged_or_not_amqp_is_only_a_value(published: bytes) -> None:
    (row,) = rows(published[:-1])
    assert row["value"] == published[:-1]
    assert row["properties"] is None


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_kind_of_message_is_a_row_and_a_line(name: str) -> None:
    (line,) = json_lines(as_rows(MESSAGES[name]))
    assert line.endswith(b"\n")
    assert json.loads(line)["offset"] == 40


@pytest.mark.parametrize("message", [encode(body=b"x"), encode(body=b"x", properties=Properties(message_id=7))])
def test_a_time_outside_of_calendars_is_null(message: bytes) -> None:
    for timestamp in (MAX_TIMESTAMP_MS, 253_402_300_800_000, -62_135_596_800_001):
        assert as_rows(message, message, timestamp=timestamp).column("chunk_timestamp").to_pylist() == [None] * 2
    for timestamp, year in ((253_402_300_799_999, 9999), (-62_135_596_800_000, 1)):
        (row,) = iter_dicts(as_rows(message, timestamp=timestamp))
        assert row["chunk_timestamp"].year == year
    absurd = Properties(creation_time=typed("TIMESTAMP", MAX_TIMESTAMP_MS))
    assert rows(encode(body=b"x", properties=absurd))[0]["creation_time"] is None
