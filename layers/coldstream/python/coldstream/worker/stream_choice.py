"""The archived streams that a job reads, by names and patterns: of each the newest incarnation."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import StreamNotFoundError
from coldstream.jobs.name_patterns import NamePatterns
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import iter_streams, newest, select_streams


def choose_streams(table: ManifestReads, vhost: str, given: Sequence[str], *, may_lack: bool = False) -> list[StreamId]:
    """Return the newest incarnation of each stream that is named or matches, sorted by name.

    Deleted streams do not exist for it. Cost: for a pattern one Query every 500 streams of the archive, and that of
    `newest` for each stream. Raises StreamNotFoundError for a name that is not archived and for patterns that nothing
    matches, unless `may_lack`; StreamDeletedError and PurgedError likewise.
    """
    wanted = NamePatterns.of(given)
    names = set(wanted.names)
    if wanted.patterns:
        streams = (one for one in iter_streams(table) if one.vhost == vhost)
        names |= {one.name for one in streams if wanted.pattern_of(one.name) is not None}
    found: list[StreamId] = []
    for name in sorted(names):
        one = newest(table, vhost, name)
        if one is not None:
            found.append(one)
        elif name in wanted.names and not may_lack:
            select_streams(table, vhost, [name])  # raises what says why
    if not found and not may_lack:
        patterns = ", ".join(map(repr, wanted.patterns))
        raise StreamNotFoundError(f"no archived stream in vhost {vhost!r} matches {patterns}")
    return found
