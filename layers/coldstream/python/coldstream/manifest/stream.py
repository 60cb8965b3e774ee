"""The identity of a stream: its names, and its incarnation, which changes when the stream is declared again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from coldstream.errors import InvalidNameError
from coldstream.units import TimestampMs

Incarnation = NewType("Incarnation", str)
"""One incarnation of a stream, from declaration to deletion: the name of the broker's directory for it.

The broker makes the name from vhost, name and the nanosecond of the declaration, and turns every byte outside the
base64url alphabet into "_" (rabbit_stream_queue:stream_name/1). So it is unique, and safe in keys as it is.
"""

MAX_NAME_BYTES = 255
"""Bytes of a vhost or a stream name at most: each is an AMQP short string."""

_INCARNATION = re.compile(r"[A-Za-z0-9_=-]{1,255}")
_NOT_BASE64URL = re.compile(rb"[^A-Za-z0-9_=-]")
_FROM_BROKER = re.compile(r"(?P<names>.+)_(?P<declared_ns>[0-9]{16,20})")


def incarnation(text: str) -> Incarnation:
    """Return a directory name as an incarnation. Raises InvalidNameError unless it is in the broker's alphabet."""
    if not _INCARNATION.fullmatch(text):
        raise InvalidNameError("incarnation", f"{text[:80]!r} is not 1 to 255 characters of A-Z a-z 0-9 _ = -")
    return Incarnation(text)


@dataclass(frozen=True, slots=True)
class StreamId:
    """A stream's names, any text up to 255 bytes of UTF-8, and its incarnation."""

    vhost: str
    name: str
    incarnation: Incarnation

    def __post_init__(self) -> None:
        for field, value in (("vhost", self.vhost), ("stream name", self.name)):
            check_name(field, value)
        incarnation(self.incarnation)

    def __str__(self) -> str:
        return f"stream {self.name!r} in vhost {self.vhost!r}"


def check_name(field: str, value: str) -> None:
    """Raise InvalidNameError, naming `field`, unless `value` is 1 to 255 bytes of UTF-8."""
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError as err:
        raise InvalidNameError(field, f"{value!r} is not text that UTF-8 can hold") from err
    if not 1 <= size_bytes <= MAX_NAME_BYTES:
        raise InvalidNameError(field, f"is {size_bytes} bytes long, and must be 1 to {MAX_NAME_BYTES}")


def new_stream(vhost: str, name: str, now_ns: int) -> StreamId:
    """Name a stream as a broker names one that is declared at `now_ns`. Raises InvalidNameError."""
    names = _NOT_BASE64URL.sub(b"_", f"{vhost}_{name}_{now_ns}".encode()).decode()
    return StreamId(vhost, name, Incarnation(names))


def declared_at(stream: StreamId) -> TimestampMs | None:
    """Return when a stream was declared, by the broker's clock; None if its incarnation does not tell."""
    match = _FROM_BROKER.fullmatch(stream.incarnation)
    return None if match is None else TimestampMs(int(match["declared_ns"]) // 1_000_000)


def stream_from_directory(directory: str, *, vhost: str | None = None, name: str | None = None) -> StreamId:
    """Name the stream of a broker's stream directory, such as `__orders_1763700000000000000`.

    The directory name keeps neither "/" nor any byte outside base64url, and does not tell where the vhost ends. `vhost`
    and `name` are the names that the caller knows. For the rest the likeliest reading counts: a leading "_" is the
    vhost "/"; otherwise the vhost ends at the first "_".
    """
    found = incarnation(directory)
    if vhost is not None and name is not None:
        return StreamId(vhost, name, found)
    match = _FROM_BROKER.fullmatch(directory)
    if match is None:
        raise InvalidNameError("directory", f"{directory!r} is not a broker's stream directory, <vhost>_<name>_<time>")
    names = match["names"]
    if vhost is not None:
        vhost_ends = _written_length(vhost)
    elif name is not None:
        vhost_ends = max(0, len(names) - 1 - _written_length(name))
    elif names.startswith("__"):
        vhost_ends = 1
    else:
        vhost_ends = len(names.partition("_")[0])
    likely_vhost = "/" if names[:vhost_ends] == "_" else names[:vhost_ends]
    likely_name = names[vhost_ends + 1 :]
    return StreamId(vhost if vhost is not None else likely_vhost, name if name is not None else likely_name, found)


def _written_length(name: str) -> int:
    """Count the characters that a name takes in a directory name: one for each byte."""
    return len(name.encode(errors="replace"))
