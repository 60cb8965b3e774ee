"""Rows as lines of JSON."""

from __future__ import annotations

import json

from coldstream.replay.tables.lines import json_line
from coldstream.replay.tables.row_transform import to_dicts
from tests.support.amqp_samples import encode
from tests.support.rows import as_rows


def test_a_line_has_bytes_as_text_or_in_base64() -> None:
    text, binary = to_dicts(as_rows(encode(body="é".encode()), encode(body=b"\xff")))
    common = {"stream": "orders", "chunk_timestamp": "2025-11-21T04:40:00.123Z"}
    assert json.loads(json_line(text)) == {"value": "é", "offset": 40} | common
    assert json.loads(json_line(binary)) == {"value_base64": "/w==", "offset": 41} | common
