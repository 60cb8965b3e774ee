"""Which stream a broker's directory belongs to: what its name leaves of the answer.

The broker makes it of vhost, name and the nanosecond of declaration, joined by "_", and then turns every character
outside base64url into "_" (rabbit_stream_queue:stream_name/1, osiris_util:to_base64uri/1). RabbitMQ 3 takes bytes for
characters there; RabbitMQ 4 means what Unicode has for one, a grapheme cluster. So many names may be written alike, and
only the broker can say which is meant.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from coldstream.agent.proof.management import BrokerStream

MAX_GUESSES = 32
"""Each may cost a question to the broker."""

_DIRECTORY = re.compile(r"(?P<names>.+)_[0-9]{16,20}")
_NOT_BASE64URL = re.compile(rb"\r\n|[^A-Za-z0-9_=-]")
"""Of bytes taken for characters; a line feed after a carriage return is one with it (string:to_graphemes/1)."""

_LETTER = re.compile(r"[A-Za-z0-9=-]")


@lru_cache(maxsize=1 << 16)
def encode_names(vhost: str, name: str) -> str:
    """Write names as RabbitMQ 3 has them in a directory's, before the "_" and the time; and as 4 has those of ASCII.

    Remembered, for it is often asked.
    """
    return _NOT_BASE64URL.sub(b"_", f"{vhost}_{name}".encode()).decode("ascii")


def encoded_names_of(directory: str) -> str | None:
    """Return what a directory's name has before the time; None for one that is not a stream's."""
    match = _DIRECTORY.fullmatch(directory)
    return None if match is None else match["names"]


def may_encode(names: str, vhost: str, name: str) -> bool:
    """Tell whether names may stand so in a directory's name, as a release of RabbitMQ writes it.

    Which code points are one character depends on the Unicode of the broker's Erlang. So where there are other than
    ASCII's, only what is certain is compared: a name may be taken for one that it is not, but not the other way round.
    """
    if names == encode_names(vhost, name):
        return True
    text = f"{vhost}_{name}"
    return not text.isascii() and len(names) <= len(text) and letters(names) == _letters_written(vhost, name)


def letters(names: str) -> str:
    """Return what of a directory's name is certain."""
    return names.replace("_", "")


@lru_cache(maxsize=1 << 16)
def _letters_written(vhost: str, name: str) -> str:
    """Return the letters that are left where each character outside base64url, of how many code points ever, is "_"."""
    text = f"{vhost}_{name}"
    return "".join(
        character
        for before, character, after in zip(f" {text}", text, f"{text[1:]} ", strict=False)
        if _LETTER.match(character) and not _joins_before(after) and unicodedata.category(before) != "Cf"
    )


def _joins_before(character: str) -> bool:
    """Tell whether a code point is one character with what stands before it: accents, joiners, shades of skin."""
    is_mark = unicodedata.category(character).startswith("M")
    return is_mark or character in "\u200c\u200d" or "\U0001f3fb" <= character <= "\U0001f3ff"


def letters_of(vhost: str, name: str) -> set[str]:
    """Return what is certain of how names are written, by each release of RabbitMQ."""
    return {letters(encode_names(vhost, name)), _letters_written(vhost, name)}


def candidates(directory: str, known: Iterable[BrokerStream]) -> list[tuple[str, str]]:
    """Return the (vhost, name) pairs of the known streams that a directory may be written for."""
    names = encoded_names_of(directory)
    if names is None:
        return []
    return [(stream.vhost, stream.name) for stream in known if may_encode(names, stream.vhost, stream.name)]


def guess_names(directory: str) -> dict[str, list[str]]:
    """Return names that a directory may belong to by their vhosts, likeliest first; at most MAX_GUESSES.

    Every "_" may be where the vhost ends, "_" alone is the vhost "/", and other "_" stand for themselves or for ".".
    """
    names = encoded_names_of(directory)
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
