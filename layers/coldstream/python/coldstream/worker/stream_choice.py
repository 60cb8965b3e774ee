"""The archived streams that a job means, by names and patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from coldstream.errors import StreamNotFoundError
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import iter_streams, newest, select_streams

_WILD = re.compile(r"[*?]")


def is_pattern(text: str) -> bool:
    """Tell whether a text has * or ?, and so may mean several streams."""
    return _WILD.search(text) is not None


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return what tells whether a name is one of these, or matches one. * is any text, ? any character; no other is."""
    parts = ("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in text) for text in patterns)
    compiled = re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None


def choose_streams(
    table: ManifestReads, vhost: str, patterns: Sequence[str], *, may_lack: bool = False
) -> list[StreamId]:
    """Return the newest incarnation of each stream that is named or matches, sorted by name.

    Deleted streams do not exist for it. Cost: for a pattern one Query every 500 streams of the archive, and that of
    `newest` for each stream. Raises StreamNotFoundError for a name that is not archived and for patterns that nothing
    matches, unless `may_lack`; StreamDeletedError and PurgedError likewise.
    """
    names = {text for text in patterns if not is_pattern(text)}
    found: dict[str, StreamId] = {}
    for name in sorted(names):
        one = newest(table, vhost, name)
        if one is not None:
            found[name] = one
        elif not may_lack:
            select_streams(table, vhost, [name])  # raises what says why
    wild = [text for text in patterns if is_pattern(text)]
    if wild:
        matches = matcher(wild)
        names = {one.name for one in iter_streams(table) if one.vhost == vhost and matches(one.name)}
        for name in names - found.keys():
            one = newest(table, vhost, name)
            if one is not None:
                found[name] = one
    if not found and not may_lack:
        raise StreamNotFoundError(f"no archived stream in vhost {vhost!r} matches {', '.join(map(repr, wild))}")
    return [found[name] for name in sorted(found)]
