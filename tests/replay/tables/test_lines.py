"""Rows as lines of JSON."""

from __future__ import annotations

import json
from typing import Any

from rstream._pyamqp.message import Properties

from coldstream.replay.tables.lines import json_lines
from tests.support.amqp_samples import encode
from tests.support.rows import as_rows


def lines(*messages: bytes) -> list[Any]:
    return [json.loads(line) for line in b"".join(json_lines(as_rows(*messages))).splitlines()]


def test_a_line_has_bytes_as_text_or_in_base64() -> None:
    text, binary = lines(encode(body='é\n"'.encode()), encode(body=b"\xff"))
    common = {"stream": "orders", "chunk_timestamp": "2025-11-21T04:40:00.123Z"}
    assert text == {"value": 'é\n"', "offset": 40} | common
    assert binary == {"value_base64": "/w==", "offset": 41} | common


def test_maps_and_times_are_objects_and_texts_and_what_is_lacking_is_left_out() -> None:
    pairs = {'ä"\n': "1", "none": None}
    properties = Properties(message_id="id", user_id=b"\xfe")
    row, bare = lines(encode(properties=properties, application_properties=pairs), encode(body=b"x"))
    assert row["properties"] == {"message_id": "id", "user_id_base64": "/g=="}
    assert row["application_properties"] == {'ä"\n': "1"}
    assert set(bare) == {"value", "stream", "offset", "chunk_timestamp"}


def test_many_rows_are_as_many_lines_in_their_order() -> None:
    assert [row["offset"] for row in lines(*[encode(body=b"x")] * 10_000)] == list(range(40, 10_040))


def test_a_line_has_the_bytes_that_json_would_write() -> None:
    (line,) = json_lines(as_rows(encode(body="z\u2028é".encode())))
    assert line == f"{json.dumps(json.loads(line), ensure_ascii=False)}\n".encode()
