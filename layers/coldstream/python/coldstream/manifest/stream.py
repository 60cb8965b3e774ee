"""Which stream: its names, and the incarnation that sets one life of it apart from another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from coldstream.errors import InvalidNameError

Incarnation = NewType("Incarnation", str)
"""One life of a stream: the name of the broker's directory for it.

The broker makes it of vhost, name and the nanosecond of declaration, with every byte outside the base64url alphabet
turned into "_" (rabbit_stream_queue:stream_name/1), so it is unique, and safe in keys as it stands.
"""

MAX_NAME_BYTES = 255
"""Of a vhost or a stream name: an AMQP short string."""

_INCARNATION = re.compile(r"[A-Za-z0-9_=-]{1,255}")
_FROM_BROKER = re.compile(r"(?P<names>.+)_(?P<declared_ns>[0-9]{16,20})")


def incarnation(text: str) -> Incarnation:
    """Take a directory name as an incarnation. Raises InvalidNameError unless it is of the broker's alphabet."""
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


def stream_from_directory(directory: str, *, vhost: str | None = None, name: str | None = None) -> StreamId:
    """Name the stream of a broker's stream directory, such as `__orders_1763700000000000000`.

    The broker's directory name keeps neither "/" nor any byte outside base64url, and does not say where the vhost
    ends. What the caller knows is taken from `vhost` and `name`; the rest is the likeliest reading: a leading "_" is
    the vhost "/", else the vhost ends at the first "_".
    """
    life = incarnation(directory)
    if vhost is not None and name is not None:
        return StreamId(vhost, name, life)
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
    return StreamId(vhost if vhost is not None else likely_vhost, name if name is not None else likely_name, life)


def _written_length(name: str) -> int:
    """Count the characters of a name in a directory's: one for each byte."""
    return len(name.encode(errors="replace"))
