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


def candidates(directory: str, known: Iterable[BrokerStream]) -> list[tuple[str, str]]:
    """Return the (vhost, name) pairs that a directory may belong to, likeliest first; none for another's directory.

    Those are the `known` streams that are written so. Where there is none, they are guesses, at most MAX_GUESSES: every
    "_" may be where the vhost ends, "_" alone is the vhost "/", and other "_" stand for themselves or for ".".
    """
    match = _DIRECTORY.fullmatch(directory)
    if match is None:
        return []
    names = match["names"]
    found = [(stream.vhost, stream.name) for stream in known if written(stream.vhost, stream.name) == names]
    return found or list(dict.fromkeys(islice(_guesses(names), MAX_GUESSES)))


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
