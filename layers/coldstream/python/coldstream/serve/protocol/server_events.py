"""Server-sent events: data as it was appended, and after each a control event that says where the reader is.

Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html. A line of a payload is a `data:` line of the
event, whichever of CR, LF and CRLF ends it: so no payload can begin an event of its own.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence

from coldstream.serve.protocol.content_type import ContentType
from coldstream.serve.protocol.json_messages import join_messages

MEDIA_TYPE = "text/event-stream"
_LINE_END = re.compile(r"\r\n|\r|\n")


def data_event(messages: Sequence[bytes], content_type: ContentType) -> bytes:
    """Encode messages as one event: text as it is, JSON as an array, anything else in base64."""
    if content_type.is_json:
        payload = join_messages(messages).decode()
    elif content_type.is_text:
        payload = b"".join(messages).decode(errors="replace")
    else:
        payload = b64encode(b"".join(messages)).decode()
    return _event("data", payload)


def control_event(next_offset: str, *, cursor: str, is_up_to_date: bool, is_closed: bool) -> bytes:
    """Encode where the reader is. A closed stream has nothing to come back for, and so no cursor."""
    control: dict[str, str | bool] = {"streamNextOffset": next_offset}
    if is_closed:
        control["streamClosed"] = True
    else:
        control["streamCursor"] = cursor
    if is_up_to_date:
        control["upToDate"] = True
    return _event("control", json.dumps(control, separators=(",", ":")))


def _event(kind: str, payload: str) -> bytes:
    # A reader drops one space after the colon: it is there only for a line that begins with one of its own.
    lines = (f"data:{' ' if line.startswith(' ') else ''}{line}\n" for line in _LINE_END.split(payload))
    return f"event: {kind}\n{''.join(lines)}\n".encode()
