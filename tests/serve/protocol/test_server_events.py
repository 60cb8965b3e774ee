from __future__ import annotations

import json
import re
from base64 import b64decode

from hypothesis import given
from hypothesis import strategies as st

from coldstream.serve.protocol.content_type import BYTES, ContentType
from coldstream.serve.protocol.server_events import control_event, data_event

TEXT = ContentType("text/plain")
JSON = ContentType("application/json")


def parse(events: bytes) -> list[tuple[str, str]]:
    """Read events as a browser does: CR, LF and CRLF end a line, an empty line ends an event."""
    found, kind, data = [], "", []
    for line in re.split(r"\r\n|\r|\n", events.decode()):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif not line and kind:
            found.append((kind, "\n".join(data)))
            kind, data = "", []
    return found


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_no_text_can_begin_an_event(texts: list[str]) -> None:
    joined = re.sub(r"\r\n|\r", "\n", "".join(texts))
    assert parse(data_event([text.encode() for text in texts], TEXT)) == [("data", joined)]


def test_leading_spaces_are_kept() -> None:
    assert data_event([b" a\n  b\nc"], TEXT) == b"event: data\ndata:  a\ndata:   b\ndata:c\n\n"


@given(st.lists(st.binary(), min_size=1))
def test_bytes_are_in_base64(messages: list[bytes]) -> None:
    ((_, data),) = parse(data_event(messages, BYTES))
    assert b64decode(data) == b"".join(messages)


def test_json_is_an_array() -> None:
    ((_, data),) = parse(data_event([b'{"a":\n1}', b"2"], JSON))
    assert json.loads(data) == [{"a": 1}, 2]


def test_control_says_where_the_reader_is() -> None:
    ((kind, data),) = parse(control_event("7", cursor="3", is_up_to_date=True, is_closed=False))
    assert kind == "control"
    assert json.loads(data) == {"streamNextOffset": "7", "streamCursor": "3", "upToDate": True}


def test_a_closed_stream_has_no_cursor() -> None:
    ((_, data),) = parse(control_event("7", cursor="3", is_up_to_date=True, is_closed=True))
    assert json.loads(data) == {"streamNextOffset": "7", "streamClosed": True, "upToDate": True}
