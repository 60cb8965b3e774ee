"""A direct stream's control objects and its name: what the bucket tells of who appends, and how clients find it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import CorruptionError, ExpiredEpochError, StreamExistsError
from coldstream.manifest.appender import Appender
from coldstream.manifest.entry import Head, JournalKind
from coldstream.scrub.account import RECENT_CHANGES
from coldstream.scrub.damage import Damage
from coldstream.scrub.entry_checks import SETTLED_MS
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble, differs
from coldstream.store.control import ControlObjects
from coldstream.store.direct_names import DirectName
from coldstream.store.direct_notes import DirectNote, appender_of_notes, parse_opening
from coldstream.units import Epoch

_NOTED = frozenset(
    {
        JournalKind.STREAM_CREATED,
        JournalKind.STREAM_OPENED,
        JournalKind.STREAM_RECOVERED,
        JournalKind.STREAM_CLOSED,
        JournalKind.STREAM_SEALED,
        JournalKind.STREAM_TRIMMED,
    }
)
"""What the bucket is told of, right after it."""


def check_direct(examiner: Examiner, control: ControlObjects) -> None:
    """Check the name and the notes of a direct stream; do nothing for a broker's.

    Cost: a GetItem; for a direct stream three more, two listings, a GET for the last note and one for each opening
    after it.
    """
    head = examiner.reads.head(examiner.incarnation)
    if head is None or head.appender is None:
        return
    _check_appender(examiner, control)
    _check_name(examiner)


def _check_appender(examiner: Examiner, control: ControlObjects) -> None:
    """Compare what the notes say with the head. They follow their changes, so they may be behind for a while."""
    told = _read_notes(examiner, control)

    def judge(snapshot: Snapshot) -> list[Trouble]:
        expected = snapshot.head.appender
        if told.appender == expected or expected is None:
            return []
        if not told.is_ahead(snapshot.head) and not _is_settled(examiner, snapshot.head):
            return []
        detail = differs("what the bucket tells of who appends", expected=expected, found=told.appender)
        return [Trouble(Damage.DIRECT_NOTE, detail if told.problem is None else str(told.problem))]

    first = examiner.reads.at_once(examiner.incarnation, [])
    if first is not None and not judge(first):
        return
    told = _read_notes(examiner, control)  # damage is what a second look finds as well
    before = len(examiner.findings)
    snapshot = examiner.confirm([], judge)
    if snapshot is None or not examiner.repair or len(examiner.findings) == before:
        return
    if not told.is_ahead(snapshot.head):
        _write(examiner, control, snapshot.head)


@dataclass(frozen=True, slots=True)
class _DirectNotes:
    """What the bucket tells: its last note, and the appender that follows from it and the openings after it."""

    note: DirectNote | None = None
    appender: Appender | None = None
    problem: CorruptionError | None = None

    def is_ahead(self, head: Head) -> bool:
        """Tell whether the bucket knows of more than the table. Only people can say which is right."""
        note, found, now = self.note, self.appender, head.appender
        return (
            now is not None
            and note is not None
            and found is not None
            and (
                note.revision > head.note_revision
                or found.epoch > now.epoch
                or found.start > now.start
                or found.is_sealed > now.is_sealed
            )
        )


def _read_notes(examiner: Examiner, control: ControlObjects) -> _DirectNotes:
    keys, incarnation = control.keys, examiner.incarnation
    last = examiner.reads.last_note(keys.direct_notes(incarnation))
    note: DirectNote | None = None
    try:
        note = None if last is None else DirectNote.from_bytes(last[1], source=last[0])
        after = keys.opening_note(incarnation, Epoch(0) if note is None else note.appender.epoch)
        listed = examiner.reads.notes_after(keys.openings(incarnation), after)
        openings = [parse_opening(data, source=key) for key, data in listed]
        return _DirectNotes(note, appender_of_notes(note, openings, source=keys.direct_notes(incarnation)))
    except CorruptionError as err:
        return _DirectNotes(note, problem=err)


def _write(examiner: Examiner, control: ControlObjects, head: Head) -> None:
    assert head.appender is not None
    try:
        # Of those that died before their notes, too: it is the same one that they would have written.
        for opening in head.appender.openings:
            examiner.reads.write(lambda one=opening: control.write_opening(head.stream, one))  # type: ignore[misc]
    except (ExpiredEpochError, CorruptionError) as err:
        examiner.notes.add(f"{head.stream}: {err}")
        return
    examiner.reads.write(lambda: control.write_direct(head))
    examiner.mended.append(examiner.findings[-1])


def _is_settled(examiner: Examiner, head: Head) -> bool:
    """Tell whether the last changes that have to be noted are old. A stream that is appended to changes all day."""
    recent = examiner.reads.journal(examiner.incarnation, max(0, head.revision - RECENT_CHANGES))
    return all(event.at + SETTLED_MS <= examiner.now() for event in recent if event.kind in _NOTED)


def _check_name(examiner: Examiner) -> None:
    known = examiner.reads.direct_name(examiner.stream)

    def judge(snapshot: Snapshot) -> list[Trouble]:
        head = snapshot.head
        if head.appender is None or head.is_deleted or known == DirectName.of(head):
            return []
        if not _is_settled(examiner, head):
            return []
        detail = differs("the stream of the name", expected=head.stream.incarnation, found=_told(known))
        return [Trouble(Damage.DIRECT_NAME, detail)]

    before = len(examiner.findings)
    snapshot = examiner.confirm([], judge)
    if snapshot is None or not examiner.repair or len(examiner.findings) == before:
        return
    try:
        examiner.reads.add_direct_name(DirectName.of(snapshot.head))
    except StreamExistsError as err:
        examiner.notes.add(str(err))
    else:
        examiner.mended.append(examiner.findings[-1])


def _told(known: DirectName | None) -> str | None:
    return None if known is None else known.stream.incarnation
