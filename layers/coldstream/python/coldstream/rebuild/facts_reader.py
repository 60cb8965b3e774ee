"""Reads what control objects and notes of quarantine say of a stream, now or as of a time.

As of a time counts what had happened by then: by the time that a record says of itself, or else by S3's time of its
object. An object that is written over, such as that of an erasure, has only its last state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from coldstream.errors import CorruptionError, InvalidNameError, NotFoundError
from coldstream.manifest.appender import Appender
from coldstream.manifest.entry import Head, Quarantine
from coldstream.manifest.stream import Incarnation, StreamId, stream_from_directory
from coldstream.plain_json import read_json
from coldstream.rebuild.facts import StreamFacts
from coldstream.store.control import MAX_NOTE_BYTES, ControlObjects, FloorNote
from coldstream.store.direct_notes import appender_of_notes
from coldstream.store.keys import Keys
from coldstream.store.parsed_keys import KeyKind
from coldstream.store.ports import ListedObject, ObjectStore
from coldstream.units import MAX_TIMESTAMP_MS, Epoch, Offset, TimestampMs

_JSON = ".json"


@dataclass(frozen=True, slots=True)
class _QuarantineNote:
    """The note beside a quarantined segment: the record, and the names if it says them."""

    quarantine: Quarantine
    vhost: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class FactsReader:
    """Reads the facts of streams of one bucket."""

    objects: ObjectStore
    keys: Keys
    at: TimestampMs | None = None

    @property
    def _until(self) -> int:
        return MAX_TIMESTAMP_MS if self.at is None else self.at

    def read(self, incarnation: Incarnation) -> StreamFacts:
        """Read the facts of a stream. Cost: some listings, and a GET for each control object and note.

        Memory: all of them. Raises CorruptionError at one that is damaged: what it protects or removes is not known.
        """
        control = ControlObjects(self.objects, self.keys)
        prefix = self.keys.control(incarnation)
        all_listed = tuple(self.objects.listed(prefix))
        there = {listed.key for listed in all_listed if listed.last_modified <= self._until}
        notes = list(self._quarantine_notes(incarnation))
        stream = control.stream(incarnation)
        all_floors = list(control.floors(incarnation))
        floors = [
            note
            for note in all_floors
            if self.keys.floor_note(incarnation, note.revision, undeletion=note.undeletion) in there
        ]
        released = {
            release.id
            for release in control.releases(incarnation)
            if self.keys.released_note(incarnation, release.id) in there
        }
        holds = control.holds(incarnation)
        erasures = tuple(control.erasures(incarnation))
        directs = [one for one in all_listed if one.key.startswith(self._direct_prefixes(incarnation))]
        direct_revisions, appender = self._appender(control, incarnation, directs) if directs else ([], None)
        floor = floors[-1] if floors else None
        # A purge forgets what was missing. A note that a late announcement has left behind brings nothing back.
        is_purged = floor is not None and floor.purged_at is not None
        losses = [] if is_purged else [loss for loss in control.losses(incarnation) if loss.at <= self._until]
        quarantines = [] if is_purged else [note.quarantine for note in notes if note.quarantine.at <= self._until]
        return StreamFacts(
            replace(
                _base(stream or _named_by(incarnation, notes), floor),
                # Also past the time that is rebuilt: the next floor must come after all that the bucket knows.
                notes_from=max((*(note.revision for note in all_floors), *direct_revisions), default=0),
                appender=appender,
            ),
            is_named=stream is not None,
            tail_epoch=None if floor is None else floor.epoch,
            holds=tuple(hold for hold in holds if hold.id not in released and hold.at <= self._until),
            erasures=tuple(one for one in erasures if one.at <= self._until),
            losses=tuple(sorted(losses, key=lambda loss: loss.at)),
            quarantines=_numbered(quarantines),
            erased=tuple((one.first_offset, one.next_offset) for one in erasures),
        )

    def _direct_prefixes(self, incarnation: Incarnation) -> tuple[str, str]:
        return self.keys.direct_notes(incarnation), self.keys.openings(incarnation)

    def _appender(
        self, control: ControlObjects, incarnation: Incarnation, directs: Iterable[ListedObject]
    ) -> tuple[list[int], Appender | None]:
        """Return the revisions of all notes of a direct stream, and what they say of its appender.

        Its epoch is past all that were ever taken, also after the time that is rebuilt: whoever took one may live.
        """
        parsed = (self.keys.parse(one.key) for one in directs)
        revisions = [key.revision or 0 for key in parsed if key is not None]
        note = control.latest_direct(incarnation, until=self._until)
        after = Epoch(0) if note is None else note.appender.epoch
        openings = control.openings(incarnation, after=after, until=self._until)
        appender = appender_of_notes(note, openings, source=self.keys.direct_notes(incarnation))
        if appender is not None and self.at is not None:
            appender = replace(appender, epoch=max(appender.epoch, control.last_epoch(incarnation)))
        return revisions, appender

    def named(self, incarnation: Incarnation) -> StreamId:
        """Read the names of a stream, and nothing else of it."""
        stream = ControlObjects(self.objects, self.keys).stream(incarnation)
        return stream or _named_by(incarnation, self._quarantine_notes(incarnation))

    def _quarantine_notes(self, incarnation: Incarnation) -> Iterator[_QuarantineNote]:
        for listed in self.objects.listed(self.keys.quarantine(incarnation)):
            parsed = self.keys.parse(listed.key)
            if parsed is None or parsed.kind is not KeyKind.QUARANTINE_NOTE:
                continue
            try:
                data = self.objects.get_whole(listed.key, MAX_NOTE_BYTES)
            except NotFoundError:
                continue  # released or discarded since it was listed
            note = _quarantine_note(listed, data, parsed.tag or "")
            found = note.quarantine.first_offset
            if found != parsed.first_offset:
                # Its copy is not what it tells of: whoever moved it must not have another segment discarded for it.
                raise CorruptionError(listed.key, 0, "first offset", expected=parsed.first_offset, found=found)
            yield note


def _quarantine_note(listed: ListedObject, data: bytes, tag: str) -> _QuarantineNote:
    try:
        note = read_json(data)
        return _QuarantineNote(
            Quarantine(
                Offset(int(note["first_offset"])),
                Offset(int(note["next_offset"])),
                str(note["reason"]),
                # Notes of earlier releases have neither: the object has a time, and its key the ETag without quotes.
                TimestampMs(int(note.get("at", listed.last_modified))),
                listed.key.removesuffix(_JSON),
                str(note.get("etag", f'"{tag}"')),
            ),
            note.get("vhost"),
            note.get("stream"),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise CorruptionError(listed.key, 0, f"{data[:80]!r} is not the note of a quarantine") from err


def _numbered(quarantines: Iterable[Quarantine]) -> tuple[Quarantine, ...]:
    """Count the copies of each segment, in the order in which they failed."""
    copies: dict[tuple[Offset, Offset], int] = defaultdict(int)
    numbered = []
    for one in sorted(quarantines, key=lambda one: (one.at, one.key)):
        offsets = one.first_offset, one.next_offset
        copies[offsets] += 1
        numbered.append(replace(one, copies=copies[offsets]))
    return tuple(numbered)


def _base(stream: StreamId, floor: FloorNote | None) -> Head:
    if floor is None:
        return Head(stream)
    return Head(
        stream,
        next_offset=floor.floor or None,
        # The first entry takes over the greatest timestamp of what was removed.
        greatest_timestamp=floor.floor_timestamp,
        floor=floor.floor,
        floor_timestamp=floor.floor_timestamp,
        generation=floor.generation,
        deleted_at=floor.deleted_at,
        purge_at=floor.purge_at,
        purge_began_at=floor.purge_began_at,
        purged_at=floor.purged_at,
    )


def _named_by(incarnation: Incarnation, notes: Iterable[_QuarantineNote]) -> StreamId:
    """Name a stream of which no object says its names: by a note of its quarantine, or else by its directory."""
    for note in notes:
        if note.vhost and note.name:
            return StreamId(note.vhost, note.name, incarnation)
    return named_by_directory(incarnation)


def named_by_directory(incarnation: Incarnation) -> StreamId:
    """Name a stream by the directory that the broker made of its names, as far as that tells them."""
    try:
        return stream_from_directory(incarnation)
    except InvalidNameError:
        return StreamId("/", incarnation, incarnation)
