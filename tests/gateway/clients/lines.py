"""What a stock client has to say of a stream whose messages and chunks are known: README.md has the format."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterable, Iterator

from tests.gateway.clients.messages import numbered

LINE = 10_000
_HEAD = struct.Struct(">QI")
_LENGTH = struct.Struct(">I")


def expected_lines(offsets: Iterable[int], messages: int, *, decoded: bool) -> list[str]:
    """Return the lines of the first messages, which lie at these offsets; `decoded` as README.md tells of clients."""
    pairs = iter(zip(range(messages), offsets, strict=False))
    return [_line(part, decoded=decoded) for part in iter(lambda: list(itertools.islice(pairs, LINE)), [])]


def _line(part: list[tuple[int, int]], *, decoded: bool) -> str:
    digest = hashlib.sha256()
    for number, offset in part:
        digest.update(b"".join(_decoded(number, offset) if decoded else _whole(number, offset)))
    return f"{part[0][1]} {part[-1][1]} {len(part)} {digest.hexdigest()}"


def _whole(number: int, offset: int) -> Iterator[bytes]:
    message = numbered(number).to_bytes()
    yield _HEAD.pack(offset, len(message))
    yield message


def _decoded(number: int, offset: int) -> Iterator[bytes]:
    yield offset.to_bytes(8)
    for field in numbered(number).fields():
        yield _LENGTH.pack(len(field))
        yield field
