"""One fragment: its object against its entry, and the repair of either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coldstream.errors import CorruptionError, HeldError, LostRaceError, NotRestoredError, ObjectNotFoundError
from coldstream.manifest.change import Change
from coldstream.manifest.entry import FragmentEntry, Head, StorageClass
from coldstream.manifest.repair import DAMAGED, plan_range_removal
from coldstream.scrub.catalogue import CATALOGUE, Repair
from coldstream.scrub.damage import Damage
from coldstream.scrub.deep import TRAILER_DIFFERS, content_troubles, read_object
from coldstream.scrub.entry_checks import object_troubles
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.footer_checks import tail_range, tail_troubles
from coldstream.scrub.mend import plan_entry
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble
from coldstream.store.ports import ObjectInfo
from coldstream.store.second_look import look_twice
from coldstream.store.sortkeys import log_key
from coldstream.units import Offset, TimestampMs

_OF_OBJECTS = {damage for damage, kind in CATALOGUE.items() if kind.repair in {Repair.REBUILD_ENTRY, Repair.TAKE_AGAIN}}

SALVAGE_MS = 30 * 24 * 3600 * 1000
"""How long a damaged object stays after its entry was removed: somebody may want to save what is sound in it."""


def check_fragment(examiner: Examiner, before: FragmentEntry | None, entry: FragmentEntry) -> FragmentEntry | None:
    """Check a fragment's object, and mend what can be mended. Return its entry as it is then, None if it is gone.

    `before` is the entry before it, as it was read. Cost: one HEAD and one GET, with `deep`, or if the entry seems
    wrong, a GET for each 4 MiB or frame; and if anything is wrong, all of it again, and a read of the entry as of one
    moment.
    """
    unread = examiner.unread
    info, troubles = _look(examiner, entry)
    if troubles:
        # One answer may be wrong, of S3 or on its way here: damage is what a second look finds as well.
        suspected = {trouble.damage for trouble in troubles}
        examiner.unread = unread
        info, second = _look(examiner, entry)
        troubles = [trouble for trouble in second if trouble.damage in suspected]
        if second and not troubles:  # neither look is to be trusted: a later pass looks again
            examiner.unsettled += 1
            examiner.fragments += 1
            return entry
    examiner.fragments += 1
    if not troubles:
        examiner.is_proven = True
        return entry
    # Only now: an object goes after its entry. If the entry still names it, the object has to be there, and sound.
    keys = [log_key(entry.next_offset)]
    if before is not None:
        keys.append(log_key(before.next_offset))
    following = next(iter(examiner.reads.log(examiner.incarnation, entry.next_offset).entries), None)
    if following is not None:
        keys.append(log_key(following.next_offset))

    def judge(snapshot: Snapshot) -> list[Trouble]:
        return troubles if snapshot.entry(entry.next_offset) == entry else []

    def plan(snapshot: Snapshot, trouble: Trouble) -> Change | None:
        if trouble.damage is Damage.STORAGE_CLASS:
            return _plan_class(examiner, snapshot, entry, info)
        if trouble.damage in _OF_OBJECTS:
            return _plan_object(examiner, snapshot, before, entry, following, info)
        return None

    snapshot = examiner.confirm(keys, judge, plan)
    return entry if snapshot is None else snapshot.entry(entry.next_offset)


def _look(examiner: Examiner, entry: FragmentEntry) -> tuple[ObjectInfo | None, list[Trouble]]:
    """Return what a HEAD says of an object, and what seems wrong with the object or its entry."""
    info = examiner.reads.info(entry.key)
    return info, list(_troubles(examiner, entry, info))


def _troubles(examiner: Examiner, entry: FragmentEntry, info: ObjectInfo | None) -> Iterator[Trouble]:
    found = list(object_troubles(entry, info, examiner.now()))
    yield from found
    if any(trouble.damage is not Damage.STORAGE_CLASS for trouble in found):
        return
    try:
        yield from _troubles_inside(examiner, entry)
    except NotRestoredError:
        examiner.unread += 1
    except ObjectNotFoundError:
        yield Trouble.of(Damage.OBJECT_MISSING, entry, f"there is no object {entry.key}")
    except CorruptionError as err:  # the object ends before the range
        yield Trouble.of(Damage.TRAILER, entry, str(err))


def _troubles_inside(examiner: Examiner, entry: FragmentEntry) -> Iterator[Trouble]:
    """Compare the entry with the end of its object, and if it is wanted, or the entry seems wrong, with all of it."""
    tail = list(tail_troubles(entry, examiner.reads.range(entry.key, tail_range(entry))))
    seems_wrong = any(trouble.damage is Damage.ENTRY for trouble in tail)
    if not ((examiner.deep or seems_wrong) and examiner.reads.can_ever_read(entry)):
        examiner.unread += examiner.deep
        yield from tail
        return
    try:
        sound = read_object(examiner.reads.range, entry.key, entry.object_bytes, entry.encoding)
    except CorruptionError as err:
        if not tail or seems_wrong:  # the object is, and not the entry; else the same damage has its name already
            yield Trouble.of(Damage.TRAILER if err.what == TRAILER_DIFFERS else Damage.CHUNKS, entry, str(err))
        else:
            yield from tail
        return
    yield from tail
    if examiner.deep:
        known = {trouble.damage for trouble in tail}
        yield from (trouble for trouble in content_troubles(entry, sound) if trouble.damage not in known)


def _plan_class(examiner: Examiner, snapshot: Snapshot, entry: FragmentEntry, info: ObjectInfo | None) -> Change | None:
    if info is None or info.storage_class not in {None, *StorageClass}:
        return None  # a class that no entry can tell
    storage_class = None if info.storage_class is None else StorageClass(info.storage_class)
    changed = replace(entry, storage_class=storage_class)
    return plan_entry(snapshot.head, entry, changed, examiner.now(), f"storage class {storage_class or 'STANDARD'}")


def _plan_object(  # noqa: PLR0917  the neighbours in their order
    examiner: Examiner,
    snapshot: Snapshot,
    before: FragmentEntry | None,
    entry: FragmentEntry,
    following: FragmentEntry | None,
    info: ObjectInfo | None,
) -> Change | None:
    """Plan the entry that a sound object gives; if the object is damaged, its removal, if that is wanted."""
    rebuilt = None if info is None else _rebuilt(examiner, entry, info)
    if rebuilt is not None and rebuilt != entry:
        return plan_entry(snapshot.head, entry, rebuilt, examiner.now(), "entry rebuilt from its object")
    if following is None or not _may_remove(examiner, snapshot.head, before, following):
        return None
    neighbours = [None if one is None else snapshot.entry(one.next_offset) for one in (before, following)]
    if neighbours != [before, following]:
        return None  # the next pass sees the neighbours as they are by then
    try:
        return _plan_removal(examiner, snapshot, before, entry, following)
    except (LostRaceError, HeldError):
        return None


def _may_remove(examiner: Examiner, head: Head, before: FragmentEntry | None, following: FragmentEntry) -> bool:
    """Tell whether an entry may be removed: a bucket or prefix of another archive must not cost one its entries."""
    if examiner.take_again and not examiner.is_proven:
        last = examiner.reads.log(examiner.incarnation, Offset((head.next_offset or 1) - 1), 1).entries
        near = [one for one in (before, following, *last) if one is not None]
        examiner.is_proven = any(_is_there(examiner, one) for one in near)
        if not examiner.is_proven:
            examiner.notes.add(
                f"no entry of {examiner.stream} was removed, because nothing shows that the bucket is this archive's:"
                " neither the objects around the damaged one nor the last are as the manifest says. Check"
                " COLDSTREAM_BUCKET and COLDSTREAM_PREFIX"
            )
            return False
    return examiner.take_again > 0


def _is_there(examiner: Examiner, entry: FragmentEntry) -> bool:
    info = examiner.reads.info(entry.key)
    found = object_troubles(entry, info, examiner.now())
    return all(trouble.damage is Damage.STORAGE_CLASS for trouble in found)


def _plan_removal(
    examiner: Examiner,
    snapshot: Snapshot,
    before: FragmentEntry | None,
    entry: FragmentEntry,
    following: FragmentEntry,
) -> Change:
    at = examiner.now()
    missing, holds = examiner.reads.missing_and_holds(examiner.incarnation)
    return plan_range_removal(
        snapshot.head,
        before,
        entry,
        following,
        missing=missing,
        holds=holds,
        at=at,
        due_at=TimestampMs(at + SALVAGE_MS),
        reason=DAMAGED,
        by="coldstream scrub",
    )


def _rebuilt(examiner: Examiner, entry: FragmentEntry, info: ObjectInfo) -> FragmentEntry | None:
    """Return the entry that the object gives, None unless it is a sound fragment of the same offsets."""
    try:
        sound = look_twice(read_object, examiner.reads.range, entry.key, info.size_bytes, entry.encoding)
    except (CorruptionError, NotRestoredError, ObjectNotFoundError):
        return None
    content = sound.content
    if content.span != (entry.first_offset, entry.next_offset):
        return None
    if info.crc32 is not None and info.crc32 != content.object_crc32:
        return None
    return content.entry(entry, sound.frames)
