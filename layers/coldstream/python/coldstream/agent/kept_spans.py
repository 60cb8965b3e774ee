"""The objects that this node has in the recovery log, each until the manifest covers all that it holds.

Only the manifest decides. That a slice went to quarantine, or that a pin was given up, covers nothing: then the object
may be the only sound copy, and stays for `coldstream recover`. Memory: a key for each object. What an object holds is
read again when it is looked at, which is once, usually: when the spans of its streams should be archived.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver import StreamArchiver
from coldstream.archive.borders import QuietSpans
from coldstream.errors import CorruptionError, ObjectNotFoundError, UnavailableError
from coldstream.manifest.stream import Incarnation
from coldstream.store.span_object import SpanEntry
from coldstream.units import Offset, TimestampMs

log = logging.getLogger(__name__)

LOOKS = 100
"""Objects that are looked at in a turn: an hour of them in a minute or so, with two GETs each at most."""

MAX_COVERED = 100_000
"""Streams of which it is remembered what the manifest covers."""


@dataclass(slots=True)
class _Kept:
    """When to look at an object, in milliseconds, and how long to wait after that."""

    due_at: int
    pause_ms: int


class KeptSpans:
    """The objects of one node; `archivers` tell cheaply what cannot be covered yet."""

    def __init__(
        self, archive: ArchiveClient, archivers: Mapping[Incarnation, StreamArchiver], every_ms: int, quiet: QuietSpans
    ) -> None:
        self._archive = archive
        self._archivers = archivers
        self._every_ms = every_ms
        self._quiet = quiet
        self._kept: dict[str, _Kept] = {}
        self._covered: dict[Incarnation, tuple[Offset, Offset]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: str, now: TimestampMs) -> None:
        """Keep an object that was just put, until its span is archived, which ends with that of quiet streams."""
        ends = (now // self._quiet.every_ms + 1) * self._quiet.every_ms
        self._kept[key] = _Kept(ends + 3 * self._every_ms, self._every_ms)

    def found(self, key: str) -> None:
        """Keep an object that is there already, and look at it soon."""
        self._kept.setdefault(key, _Kept(0, self._every_ms))

    async def delete_covered(self, now: TimestampMs) -> None:
        """Look at the objects that are due, oldest first, and delete those that are covered.

        Cost: a GET for each object that is looked at, a Query for each stream of them, once a span, and a POST. Raises
        UnavailableError and others of AWS: the rest is looked at in the next turn.
        """
        due = sorted(key for key, kept in self._kept.items() if kept.due_at <= now)[:LOOKS]
        gone = [key for key in due if await self._is_covered(key, now)]
        if not gone:
            return
        report = await self._archive.delete_spans(gone)
        for key in report.deleted:
            self._kept.pop(key, None)
        if report.failed:
            raise UnavailableError(f"{report.failed[0].key} is not deleted: {report.failed[0].reason}")

    async def _is_covered(self, key: str, now: TimestampMs) -> bool:
        try:
            header = await self._archive.span_header(key)
        except ObjectNotFoundError:  # a recovery has dealt with it
            del self._kept[key]
            return False
        except CorruptionError as err:
            log.error("%s stays in the recovery log: %s", key, err)  # noqa: TRY400  its text names the place
            self._postpone(key, now)
            return False
        for entry in header.entries:
            if not await self._holds(entry):
                self._postpone(key, now)
                return False
        return True

    def _postpone(self, key: str, now: TimestampMs) -> None:
        kept = self._kept[key]
        kept.due_at = now + kept.pause_ms
        kept.pause_ms = min(2 * kept.pause_ms, self._quiet.every_ms)

    async def _holds(self, entry: SpanEntry) -> bool:
        """Tell whether the manifest covers the chunks of an entry, or removed them for good."""
        incarnation = entry.stream.incarnation
        known = self._covered.get(incarnation)
        if known is not None and known[0] <= entry.first_offset and entry.next_offset <= known[1]:
            return True
        archiver = self._archivers.get(incarnation)
        limit = entry.next_offset
        if archiver is not None:
            if archiver.progress.archived_to < entry.next_offset:
                return False
            # One Query then answers for all objects of the span.
            limit = archiver.progress.archived_to
        reached = await self._archive.covered_to(incarnation, entry.first_offset, limit)
        if len(self._covered) >= MAX_COVERED:
            self._covered.clear()
        self._covered[incarnation] = entry.first_offset, reached
        return reached >= entry.next_offset
