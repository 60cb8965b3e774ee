"""Which archived streams the names and patterns of a job mean: of each the newest incarnation that is not deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from coldstream.jobs.name_patterns import NamePatterns, is_match
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import iter_streams, newest

MAX_NAMES_READ = 20_000
"""Streams of the registry that one answer looks through: 40 Queries."""


@dataclass(frozen=True, slots=True)
class MatchedStreams:
    """The streams that patterns mean, by name; the patterns that mean none; and whether there may be more of them."""

    streams: tuple[StreamId, ...]
    unmatched: tuple[str, ...] = ()
    is_cut: bool = False


def match_streams(
    table: ManifestReads, vhost: str, patterns: Sequence[str], *, max_read: int = MAX_NAMES_READ
) -> MatchedStreams:
    """Find the archived streams of a vhost that any of the patterns means; without patterns, all of them.

    Cost: a Query and a GetItem for each plain name. With patterns, a Query for every 500 streams of the archive, and a
    Query and a GetItem for each stream that matches only if it has several incarnations.
    """
    wanted = tuple(patterns) or ("*",)
    given = NamePatterns.of(wanted)
    found: dict[str, StreamId] = {}
    is_cut = False
    if given.patterns:
        shown = list(islice(iter_streams(table), max_read + 1))
        is_cut = len(shown) > max_read
        by_name: dict[str, list[StreamId]] = {}
        for stream in shown[:max_read]:
            if stream.vhost == vhost and given.pattern_of(stream.name) is not None:
                by_name.setdefault(stream.name, []).append(stream)
        for name, streams in by_name.items():
            # A single incarnation is looked at by whoever reads its head: it may be deleted.
            live = streams[0] if len(streams) == 1 else newest(table, vhost, name)
            if live is not None:
                found[name] = live
    for name in given.names:
        if name not in found and (live := newest(table, vhost, name)) is not None:
            found[name] = live
    unmatched = tuple(one for one in wanted if not any(is_match(one, name) for name in found))
    return MatchedStreams(tuple(found[name] for name in sorted(found)), unmatched, is_cut)
