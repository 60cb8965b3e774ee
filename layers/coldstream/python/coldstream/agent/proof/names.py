"""The names of streams as brokers encode them in a directory's name.

    <vhost>_<name>_<nanosecond of declaration>    every character outside base64url replaced by "_"

RabbitMQ 3 replaces each byte, RabbitMQ 4 each character in the sense of Unicode, a grapheme cluster. Many names are
encoded alike, so a directory's name only excludes streams; the broker has to say which one it is. Upstream:
rabbit_stream_queue:stream_name/1, osiris_util:to_base64uri/1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from coldstream.agent.proof.management import BrokerStream

MAX_GUESSES = 32
"""Each guess may cost a request to the broker."""

_DIRECTORY = re.compile(r"(?P<names>.+)_[0-9]{16,20}")
_NOT_BASE64URL = re.compile(rb"\r\n|[^A-Za-z0-9_=-]")
"""In bytes. A line feed after a carriage return is one character with it (string:to_graphemes/1)."""

_LETTER = re.compile(r"[A-Za-z0-9=-]")


@lru_cache(maxsize=1 << 16)
def encode_names(vhost: str, name: str) -> str:
    """Encode names as RabbitMQ 3 does, before the "_" and the time. RabbitMQ 4 encodes ASCII the same way.

    Cached: each look at the directories encodes the names of all streams again.
    """
    return _NOT_BASE64URL.sub(b"_", f"{vhost}_{name}".encode()).decode("ascii")


def encoded_names_of(directory: str) -> str | None:
    """Return the part of a directory's name before the time; None if it is not a stream's."""
    match = _DIRECTORY.fullmatch(directory)
    return None if match is None else match["names"]


def may_encode(names: str, vhost: str, name: str) -> bool:
    """Tell whether `names`, from a directory's name, may stand for a vhost and a name in any release of RabbitMQ.

    Which code points make one character depends on the Unicode version of the broker's Erlang. So outside of ASCII only
    the letters that are certain are compared. That may take a stream for a candidate that is none; the broker then says
    so. It never leaves out the right one.
    """
    if names == encode_names(vhost, name):
        return True
    text = f"{vhost}_{name}"
    return not text.isascii() and len(names) <= len(text) and letters(names) == _letters_encoded(vhost, name)


def letters(names: str) -> str:
    """Return the part of encoded names that is certain: all but the "_"."""
    return names.replace("_", "")


@lru_cache(maxsize=1 << 16)
def _letters_encoded(vhost: str, name: str) -> str:
    """Return the letters that stay if each other character becomes "_", however many code points a character has."""
    text = f"{vhost}_{name}"
    return "".join(
        character
        for before, character, after in zip(f" {text}", text, f"{text[1:]} ", strict=False)
        if _LETTER.match(character) and not _joins_before(after) and unicodedata.category(before) != "Cf"
    )


def _joins_before(character: str) -> bool:
    """Tell whether a code point makes one character with the one before it: accents, joiners, skin tones."""
    is_mark = unicodedata.category(character).startswith("M")
    return is_mark or character in "\u200c\u200d" or "\U0001f3fb" <= character <= "\U0001f3ff"


def letters_of(vhost: str, name: str) -> set[str]:
    """Return the certain part of how each release of RabbitMQ encodes names."""
    return {letters(encode_names(vhost, name)), _letters_encoded(vhost, name)}


def candidates(directory: str, known: Iterable[BrokerStream]) -> list[tuple[str, str]]:
    """Return the (vhost, name) pairs of the known streams that a directory may belong to."""
    names = encoded_names_of(directory)
    if names is None:
        return []
    return [(stream.vhost, stream.name) for stream in known if may_encode(names, stream.vhost, stream.name)]


def guess_names(directory: str) -> dict[str, list[str]]:
    """Guess names for a directory, by vhost, the likeliest first; at most MAX_GUESSES.

    The vhost may end at every "_". A vhost "_" is "/", and any other "_" stands for itself or for ".".
    """
    names = encoded_names_of(directory)
    found: dict[str, list[str]] = {}
    for vhost, name in [] if names is None else dict.fromkeys(islice(_guesses(names), MAX_GUESSES)):
        found.setdefault(vhost, []).append(name)
    return found


def _guesses(names: str) -> Iterator[tuple[str, str]]:
    borders = [at for at in range(1, len(names) - 1) if names[at] == "_"]
    # Every plain guess comes before any other one, as the caller takes only the first MAX_GUESSES.
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
