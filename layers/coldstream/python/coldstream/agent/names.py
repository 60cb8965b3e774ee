"""Which stream a broker's directory belongs to: what its name leaves of the answer.

The broker makes it of vhost, name and the nanosecond of declaration, joined by "_", and then turns every character
outside base64url into "_" (rabbit_stream_queue:stream_name/1, osiris_util:to_base64uri/1). So many names may be written
alike, and only the broker can say which is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from coldstream.agent.management import BrokerStream

MAX_GUESSES = 32
"""Each may cost a question to the broker."""

_DIRECTORY = re.compile(r"(?P<names>.+)_[0-9]{16,20}")
_NOT_BASE64URL = re.compile(rb"\r\n|[^A-Za-z0-9_=-]")
"""Bytes are taken for characters, and a line feed after a carriage return is one with it (string:to_graphemes/1)."""


@lru_cache(maxsize=1 << 16)
def written(vhost: str, name: str) -> str:
    """Write names as they stand in a directory's, before the "_" and the time; remembered, for it is often asked."""
    return _NOT_BASE64URL.sub(b"_", f"{vhost}_{name}".encode()).decode("ascii")


def written_names(directory: str) -> str | None:
    """Return what a directory's name has before the time; None for one that is not a stream's."""
    match = _DIRECTORY.fullmatch(directory)
    return None if match is None else match["names"]


def candidates(directory: str, known: Iterable[BrokerStream]) -> list[tuple[str, str]]:
    """Return the (vhost, name) pairs of the known streams that are written as a directory is."""
    names = written_names(directory)
    return [(stream.vhost, stream.name) for stream in known if written(stream.vhost, stream.name) == names]


def guesses(directory: str) -> dict[str, list[str]]:
    """Return names that a directory may belong to by their vhosts, likeliest first; at most MAX_GUESSES.

    Every "_" may be where the vhost ends, "_" alone is the vhost "/", and other "_" stand for themselves or for ".".
    """
    names = written_names(directory)
    found: dict[str, list[str]] = {}
    for vhost, name in [] if names is None else dict.fromkeys(islice(_guesses(names), MAX_GUESSES)):
        found.setdefault(vhost, []).append(name)
    return found


def _guesses(names: str) -> Iterator[tuple[str, str]]:
    borders = [at for at in range(1, len(names) - 1) if names[at] == "_"]
    for plain in (True, False):
        for border in borders:
            vhost, name = names[:border], names[border + 1 :]
            if vhost == "_":
                vhost = "/"
            if plain:
                yield vhost, name
            else:
                yield from _unplain(vhost, name)


def _unplain(vhost: str, name: str) -> Iterator[tuple[str, str]]:
    dotted = name.replace("_", ".")
    if dotted != name:
        yield vhost, dotted
    if vhost.startswith("_") and vhost != "_":
        yield f"/{vhost[1:]}", name
