"""A stream's address in the console: `/streams/{vhost}/{name}/{incarnation}`, whatever its names are made of.

Percent-encoding would not do: browsers and proxies take %2e%2e for .., and %2F may become a slash on the way. So a
segment has the characters A-Z a-z 0-9 _ - and dots as they are, and each other byte of UTF-8 as ~ and two digits.
"""

from __future__ import annotations

import re

from coldstream.manifest.stream import MAX_NAME_BYTES, StreamId

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ESCAPE = re.compile(r"~([0-9A-F]{2})")
_SEGMENT = re.compile(r"(?:[A-Za-z0-9_.-]|~[0-9A-F]{2})+")


def segment_of(text: str) -> str:
    """Write a name as one segment of a path, and never as . or .. alone."""
    only_dots = not text.strip(".")
    kept = _PLAIN if only_dots else _PLAIN | {ord(".")}
    return "".join(chr(byte) if byte in kept else f"~{byte:02X}" for byte in text.encode())


def text_of(segment: str) -> str | None:
    """Read a segment back; None if `segment_of` writes no name so."""
    if not _SEGMENT.fullmatch(segment) or len(segment) > 3 * MAX_NAME_BYTES:
        return None
    raw = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), segment).encode("latin-1")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if segment_of(text) == segment else None


def path_of(stream: StreamId) -> str:
    """Return the path of a stream's page."""
    return f"/streams/{segment_of(stream.vhost)}/{segment_of(stream.name)}/{segment_of(stream.incarnation)}"
