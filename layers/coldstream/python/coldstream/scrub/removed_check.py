"""The tombstones: of no object that an entry names, below the fence, and swept when they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from coldstream.manifest.change import Change
from coldstream.manifest.entry import Tombstone
from coldstream.scrub.damage import Damage
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.mend import plan_head, plan_no_tombstone
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble, differs
from coldstream.store.keys import Keys
from coldstream.store.sortkeys import log_key, row_key, tombstone_key
from coldstream.units import format_timestamp

OVERDUE_MS = 2 * 24 * 3600 * 1000
"""How long after its due time a tombstone may still be there: sweeps run daily."""

AT_ONCE = 45
"""Tombstones that are looked at together: each with the entry that it may belong to."""


def check_tombstones(examiner: Examiner, keys: Keys, after: str) -> Iterator[str]:
    """Check the tombstones past a sort key; yield where to go on. Cost: one request for each 45 tombstones."""
    while rows := examiner.reads.rows(examiner.incarnation, "tombstone#", after):
        tombstones = [row for row in rows if isinstance(row, Tombstone)]
        for start in range(0, len(tombstones), AT_ONCE):
            batch = tombstones[start : start + AT_ONCE]
            _check_batch(examiner, keys, batch)
            after = row_key(batch[-1])
            yield after


def _check_batch(examiner: Examiner, keys: Keys, batch: Sequence[Tombstone]) -> None:
    names = [name for one in batch for name in (tombstone_key(one), log_key(one.next_offset))]

    def judge(snapshot: Snapshot) -> list[Trouble]:
        there = [found for one in batch if (found := snapshot.get(tombstone_key(one), Tombstone)) is not None]
        return [trouble for one in there for trouble in _troubles(examiner, snapshot, one)]

    def plan(snapshot: Snapshot, trouble: Trouble) -> Change | None:
        if trouble.damage is not Damage.TOMBSTONE_LIVE:
            return None
        one = next(one for one in batch if one.key == trouble.key)
        return plan_no_tombstone(snapshot.head, one, examiner.now())

    snapshot = examiner.confirm(names, judge, plan)
    # Earlier releases removed objects without raising the generation; what they began is never fenced.
    if snapshot is None or not snapshot.head.journal_from:
        return
    for one in batch:
        if generation_of(keys, one) >= snapshot.head.generation and one.next_offset > snapshot.head.floor:
            _check_fence(examiner, generation_of(keys, one), one)


def _troubles(examiner: Examiner, snapshot: Snapshot, one: Tombstone) -> Iterator[Trouble]:
    entry = snapshot.entry(one.next_offset)
    if entry is not None and entry.key == one.key:
        yield Trouble.of(Damage.TOMBSTONE_LIVE, entry, f"{one.key} has a tombstone, due {format_timestamp(one.due_at)}")
    elif one.due_at + OVERDUE_MS <= examiner.now():
        detail = f"{one.key} was due {format_timestamp(one.due_at)}"
        yield Trouble(Damage.TOMBSTONE_OVERDUE, detail, one.first_offset, one.next_offset, one.key)


def _check_fence(examiner: Examiner, generation: int, one: Tombstone) -> None:
    """Check that nobody can commit a removed object again, now that its generation does not keep it out.

    Nor can anybody while another entry holds its offsets, as after a compaction.
    """
    page = examiner.reads.log(examiner.incarnation, one.first_offset, 1)
    following = next(iter(page.entries), None)
    names = [tombstone_key(one), *([] if following is None else [log_key(following.next_offset)])]

    def judge(snapshot: Snapshot) -> list[Trouble]:
        head = snapshot.head
        if snapshot.get(tombstone_key(one), Tombstone) is None or generation < head.generation or head.is_deleted:
            return []
        now = None if following is None else snapshot.entry(following.next_offset)
        if now is None:
            is_free = following is None and (head.next_offset is None or head.next_offset <= one.first_offset)
        else:
            is_free = now.first_offset >= one.next_offset and (now.prior_offset or 0) <= one.first_offset
        if not is_free or one.next_offset <= head.floor:
            return []
        detail = differs("the head's generation", expected=generation + 1, found=head.generation)
        return [Trouble(Damage.FENCE, detail, one.first_offset, one.next_offset, one.key)]

    def plan(snapshot: Snapshot, _: Trouble) -> Change | None:
        raised = replace(snapshot.head, generation=generation + 1)
        return plan_head(raised, examiner.now(), f"generation raised to {generation + 1}")

    examiner.confirm(names, judge, plan)


def generation_of(keys: Keys, tombstone: Tombstone) -> int:
    """Return the generation of a tombstone's object, as its key says; -1 if that is not the key of a fragment."""
    parsed = keys.parse(tombstone.key)
    return -1 if parsed is None or parsed.generation is None else parsed.generation
