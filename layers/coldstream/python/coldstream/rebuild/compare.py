"""Two tables, row by row: whether a rebuilt one says of a stream what the other says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from coldstream.manifest.entry import Head, Row, Tombstone
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads
from coldstream.store.sortkeys import row_key
from coldstream.units import Offset, TimestampMs

_KINDS = ("log#", "gap#", "loss#", "quarantine#", "hold#", "erasure#")
"""The kinds of items that are compared; the journal is another one in each table, and tombstones come below."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs: its sort key, and what each table says, None for nothing. `fields` are those that differ."""

    item: str
    one: Row | None
    other: Row | None
    fields: tuple[str, ...] = ()


def differences(one: ManifestReads, other: ManifestReads, incarnation: Incarnation) -> Iterator[Difference]:
    """Yield the rows of a stream that differ, by kind, in order of their sort keys.

    What a rebuild cannot know does not count: revisions, the journal, claims, when tombstones are due, and a fence that
    is higher in `other`, which keeps keys out that `one` would admit. Cost: one Query a page of either table. Memory:
    the tombstones of both.
    """
    for kind in _KINDS:
        yield from _merged(_rows(one, incarnation, kind), _rows(other, incarnation, kind))
    yield from _merged(_tombstones(one, incarnation), _tombstones(other, incarnation))


def _rows(table: ManifestReads, incarnation: Incarnation, kind: str) -> Iterator[tuple[str, Row]]:
    for row in table.rows(incarnation, kind):
        yield row_key(row), row


def _tombstones(table: ManifestReads, incarnation: Incarnation) -> Iterator[tuple[str, Row]]:
    for key in sorted({row.key for row in table.rows(incarnation, "tombstone#") if isinstance(row, Tombstone)}):
        yield f"tombstone of {key}", Tombstone(key, TimestampMs(0), Offset(0), Offset(0), 0)


def _merged(ones: Iterator[tuple[str, Row]], others: Iterator[tuple[str, Row]]) -> Iterator[Difference]:
    """Walk both in the order of their keys."""
    one, other = next(ones, None), next(others, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield Difference(one[0], one[1], None)
            one = next(ones, None)
        elif one is None or other[0] < one[0]:
            yield Difference(other[0], None, other[1])
            other = next(others, None)
        else:
            if found := _differing(one[1], other[1]):
                yield Difference(one[0], one[1], other[1], found)
            one, other = next(ones, None), next(others, None)


def _differing(one: Row, other: Row) -> tuple[str, ...]:
    if isinstance(one, Head) and isinstance(other, Head):
        # The journal of a rebuilt table begins with the rebuild.
        generation = min(one.generation, other.generation)
        other = replace(
            other,
            revision=one.revision,
            journal_from=one.journal_from,
            notes_from=one.notes_from,
            generation=generation,
            claims=one.claims,
        )
    if type(one) is not type(other):
        return ("kind",)
    return tuple(f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name))
