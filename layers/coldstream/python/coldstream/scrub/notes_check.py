"""The control objects of a stream: the bucket alone tells its names, cluster, floor, fence, holds, losses and erasures.

A HEAD shows whether a control object has the bytes that it must have, by size and CRC-32; only floors are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

from coldstream.errors import CorruptionError
from coldstream.manifest.cluster import NO_CLUSTER
from coldstream.manifest.entry import Erasure, ErasureState, Head, Hold, Loss, Tombstone
from coldstream.scrub.account import RECENT_CHANGES
from coldstream.scrub.damage import Damage
from coldstream.scrub.direct_check import check_direct
from coldstream.scrub.entry_checks import SETTLED_MS
from coldstream.scrub.examiner import LOOKS, Examiner
from coldstream.scrub.removed_check import OVERDUE_MS, generation_of
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble, differs
from coldstream.store.control import ClusterBinding, ControlObjects, FloorNote
from coldstream.store.notes import note_bytes
from coldstream.store.sortkeys import TOMBSTONES, row_key

_NOTHING = (0, None, None, 0)
"""What is said of a stream that has no note: floor, times of deletion and purge, fence."""


@dataclass(frozen=True, slots=True)
class _Note:
    """A control object that has to be there: of what damage its absence is, and how to write it."""

    damage: Damage
    key: str
    value: object
    write: Callable[[], None]
    row: Erasure | Hold | Loss | None = None
    """The item that it tells of, None for the stream itself."""


def check_notes(examiner: Examiner, control: ControlObjects, after: str) -> Iterator[str]:
    """Check the control objects; `after` is the sort key of the last record that is done. Yield where to go on.

    Cost: up to eight requests, those of `check_direct`, a HEAD for each erasure, hold and loss, and a Query a page of
    these.
    """
    if not after:
        _check_stream(examiner, control)
        _check_floor(examiner, control)
        check_direct(examiner, control)
        yield "!"  # sorts before any key
    incarnation, keys = examiner.incarnation, control.keys
    for kind in ("erasure#", "hold#", "loss#"):  # in the order of their keys
        reached = max(after, kind)
        while rows := examiner.reads.rows(incarnation, kind, reached):
            for row in rows:
                if isinstance(row, Hold):
                    key = keys.hold_note(incarnation, row.id)
                    _check(examiner, _Note(Damage.HOLD_NOTE, key, row, _hold_writer(examiner, control, row), row))
                elif isinstance(row, Loss):
                    key = keys.loss_note(incarnation, row.first_offset, row.next_offset)
                    _check(examiner, _Note(Damage.LOSS_NOTE, key, row, _loss_writer(examiner, control, row), row))
                elif isinstance(row, Erasure) and row.at + OVERDUE_MS <= examiner.now():  # a sweep writes it, too
                    key = keys.erasure_note(incarnation, row.id)
                    _check(examiner, _Note(Damage.ERASURE_NOTE, key, row, _erasure_writer(examiner, control, row), row))
                reached = row_key(row)
                yield reached


def _hold_writer(examiner: Examiner, control: ControlObjects, hold: Hold) -> Callable[[], None]:
    return lambda: control.write_hold(examiner.incarnation, hold)


def _loss_writer(examiner: Examiner, control: ControlObjects, loss: Loss) -> Callable[[], None]:
    return lambda: control.write_loss(examiner.incarnation, loss)


def _erasure_writer(examiner: Examiner, control: ControlObjects, erasure: Erasure) -> Callable[[], None]:
    return lambda: control.write_erasure(examiner.incarnation, erasure)


def _check_stream(examiner: Examiner, control: ControlObjects) -> None:
    stream = examiner.stream
    first = next(iter(examiner.reads.journal(examiner.incarnation, 0, 1)), None)
    if first is not None and first.at + SETTLED_MS > examiner.now():
        return  # its cluster may be bound, and not be written yet
    key = control.keys.stream_note(stream.incarnation)
    _check(examiner, _Note(Damage.STREAM_NOTE, key, stream, lambda: control.write_stream(stream)))
    cluster = examiner.reads.cluster(stream)
    if cluster != NO_CLUSTER:
        key = control.keys.cluster_note(stream.vhost, stream.name)
        binding = ClusterBinding(stream.vhost, stream.name, cluster)
        _check(
            examiner,
            _Note(Damage.CLUSTER_NOTE, key, binding, lambda: control.write_cluster(stream.vhost, stream.name, cluster)),
        )


def _check(examiner: Examiner, note: _Note) -> None:
    if any(_is_there(examiner, note) for _ in range(LOOKS)):
        return

    def judge(snapshot: Snapshot) -> list[Trouble]:
        if note.row is not None and snapshot.items.get(row_key(note.row)) != note.row:
            return []
        first, following = (None, None) if note.row is None else (note.row.first_offset, note.row.next_offset)
        detail = f"the control object {note.key} is missing, or tells something else"
        return [Trouble(note.damage, detail, first, following, note.key)]

    before = len(examiner.findings)
    keys = [] if note.row is None else [row_key(note.row)]
    if examiner.confirm(keys, judge) is not None and examiner.repair and len(examiner.findings) > before:
        examiner.reads.write(note.write)
        examiner.mended.append(examiner.findings[-1])


def _is_there(examiner: Examiner, note: _Note) -> bool:
    expected = note_bytes(note.value)
    info = examiner.reads.info(note.key)
    if isinstance(note.row, Loss) or (isinstance(note.row, Erasure) and note.row.state is ErasureState.RUNNING):
        # An erasure goes on before its note does. A loss that was announced again may have another reason there. What
        # protects is in both: their offsets.
        return info is not None
    return info is not None and info.size_bytes == len(expected) and info.crc32 in {None, crc32(expected)}


def _check_floor(examiner: Examiner, control: ControlObjects) -> None:
    """Compare the newest floor of the bucket, and the fence beside it, with the head's.

    It is written after its change, by whoever made that, or else by the sweep. So it may be behind for a while, and is
    never ahead.
    """

    def read() -> FloorNote | None:
        return examiner.reads.last_floor(f"{control.keys.control(examiner.incarnation)}floor.")

    def judge(snapshot: Snapshot) -> list[Trouble]:
        head = snapshot.head
        found = _NOTHING if note is None else (note.floor, note.deleted_at, note.purged_at, note.generation)
        expected = (head.floor, head.deleted_at, head.purged_at, head.generation)
        if found == expected:
            return []
        if note is not None and note.undeletion and note.revision == head.note_revision:
            return []  # of an undeletion that never came: until the next change, the bucket keeps more than the table
        if not (note is not None and _is_ahead(note, head)) and not _is_old(examiner, head):
            return []
        is_fence_alone = found[:-1] == expected[:-1] and found[-1] < expected[-1]
        if is_fence_alone and _is_next_sweeps(examiner, control, head):
            return []
        what = "the newest floor, with the times of deletion and purge, and the fence,"
        detail = differs(what, expected=expected, found=None if note is None else found)
        return [Trouble(Damage.FLOOR_NOTE, detail)]

    # The note before the moment that it is held against: it is never ahead then.
    with suppress(CorruptionError):
        note = read()
        first = examiner.reads.at_once(examiner.incarnation, [])
        if first is not None and not judge(first):
            return
    note = read()  # damage is what a second look finds as well
    before = len(examiner.findings)
    snapshot = examiner.confirm([], judge)
    is_ahead = snapshot is not None and note is not None and _is_ahead(note, snapshot.head)
    if snapshot is not None and examiner.repair and len(examiner.findings) > before and not is_ahead:
        head = snapshot.head
        examiner.reads.write(lambda: control.write_floor(head))
        examiner.mended.append(examiner.findings[-1])


def _is_ahead(note: FloorNote, head: Head) -> bool:
    """Tell whether a rebuild would remove what the table has not removed. Only people can say which is right."""
    return note.revision > head.note_revision or note.floor > head.floor or note.generation > head.generation


def _is_next_sweeps(examiner: Examiner, control: ControlObjects, head: Head) -> bool:
    """Tell whether what raised the fence, as an erasure does, left a tombstone: the sweep writes the note first.

    Until then the object before it is there, and a rebuild finds the fence from the one that replaced it. Cost: a Query
    a page of tombstones.
    """
    rows = examiner.reads.all_rows(examiner.incarnation, TOMBSTONES, row_key)
    return any(
        isinstance(row, Tombstone)
        and generation_of(control.keys, row) + 1 == head.generation
        and row.due_at + OVERDUE_MS > examiner.now()
        for row in rows
    )


def _is_old(examiner: Examiner, head: Head) -> bool:
    """Tell whether the newest changes leave a sweep enough time to have written the floor."""
    recent = examiner.reads.journal(examiner.incarnation, max(0, head.revision - RECENT_CHANGES))
    return all(event.at + OVERDUE_MS <= examiner.now() for event in recent[-1:])
