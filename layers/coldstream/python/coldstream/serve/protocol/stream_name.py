"""The name of a stream in the path of its URL."""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote_to_bytes

from coldstream.errors import InvalidInputError
from coldstream.manifest.stream import check_name

PREFIX = "/v1/stream/"


def name_of_path(raw_path: str) -> str | None:
    """Return the name of the stream at a path as it was sent, percent-encoded; None if no stream can be there.

    Names that differ in any byte are different streams; a slash is a part of the name, encoded or not. Raises
    InvalidInputError for a name that some client or proxy on the way would change or could not show: bytes that are
    not UTF-8, control characters, and the segments "." and "..".
    """
    if not raw_path.startswith(PREFIX) or raw_path == PREFIX:
        return None
    try:
        name = unquote_to_bytes(raw_path.removeprefix(PREFIX)).decode()
    except UnicodeDecodeError as err:
        raise InvalidInputError("path", "is not UTF-8") from err
    check_name("path", name)
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise InvalidInputError("path", "has a control character")
    if {".", ".."} & set(name.split("/")):
        raise InvalidInputError("path", "has a segment . or ..")
    return name
