"""The streams that a job is about, by the names and patterns that it gives, in the order of the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from coldstream.errors import InvalidNameError, NotFoundError, RemovedError
from coldstream.jobs.name_patterns import NamePatterns
from coldstream.jobs.specs import CompactSpec, ExportSpec, LoadSpec, RetentionSpec, ScrubSpec
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.sortkeys import registry_key
from coldstream.store.streams import iter_streams, select_streams

SpecOfStreams = CompactSpec | ScrubSpec | RetentionSpec | LoadSpec | ExportSpec


def key_of(stream: StreamId) -> str:
    """Return the place of a stream in the order in which a job takes its streams."""
    return registry_key(stream.vhost, stream.name, stream.incarnation)


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """Streams of `vhost` by name and pattern; every stream of every vhost, if neither is given.

    Of a name it is the newest incarnation, as commands take it; of what matches a pattern, and of all, each one.
    `named` are those that were found by name, and `missing` says of the other names why they were not.
    """

    vhost: str
    given: NamePatterns
    named: frozenset[StreamId]
    missing: tuple[tuple[str, str], ...]

    @classmethod
    def find(cls, table: ManifestReads, spec: SpecOfStreams) -> Self:
        """Look up the names of a spec. Cost: a Query and a GetItem each."""
        given = NamePatterns.of(spec.streams)
        named: set[StreamId] = set()
        missing: list[tuple[str, str]] = []
        for name in given.names:
            try:
                named.update(select_streams(table, spec.vhost, [name]))
            except (NotFoundError, RemovedError, InvalidNameError) as err:
                missing.append((name, str(err)))
        return cls(spec.vhost, given, frozenset(named), tuple(missing))

    @property
    def is_every(self) -> bool:
        """Whether it is about all streams of all vhosts."""
        return not self.given.names and not self.given.patterns

    def has(self, stream: StreamId) -> bool:
        """Tell whether a stream is chosen."""
        if self.is_every or stream in self.named:
            return True
        return stream.vhost == self.vhost and self.given.pattern_of(stream.name) is not None

    def iter(self, table: ManifestReads, after: str | None = None) -> Iterator[StreamId]:
        """Yield the streams, those that are deleted included, past a key. Cost: one Query every 500; none for names."""
        if self.is_every:
            yield from iter_streams(table, after)
        elif self.given.patterns:
            yield from filter(self.has, iter_streams(table, after))
        else:
            yield from (stream for stream in sorted(self.named, key=key_of) if after is None or key_of(stream) > after)

    def unmatched(self, table: ManifestReads) -> list[str]:
        """Return the patterns that no stream matches. Cost: one Query every 500 streams, until each has one."""
        left = set(self.given.patterns)
        if not left:
            return []
        for stream in iter_streams(table):
            if stream.vhost == self.vhost:
                left -= {pattern for pattern in left if NamePatterns((), (pattern,)).pattern_of(stream.name)}
            if not left:
                break
        return [pattern for pattern in self.given.patterns if pattern in left]
