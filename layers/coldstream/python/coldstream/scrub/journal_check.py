"""The journal: every revision has its event, and, with `deep`, the recorded changes give the table."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.errors import ConflictError, CorruptionError, NotRecordedError
from coldstream.manifest.entry import Head, JournalEvent, Row
from coldstream.manifest.state import ManifestState, replay
from coldstream.scrub.damage import Damage
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.reads import MAX_KEYS
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble
from coldstream.store.sortkeys import LOG_HEAD, event_key, row_key

MAX_REPLAYED = 50_000
"""Revisions of the longest journal that a deep scrub replays: the state that comes out of it is held in memory."""


def check_journal(examiner: Examiner, head: Head, after: int) -> Iterator[int]:
    """Check that each revision past `after` up to the head's has its event; yield how far that is checked.

    What an earlier release began has no event for some changes, and is left alone. Cost: a Query a page.
    """
    if not head.journal_from:
        return
    after = max(after, head.journal_from - 1)
    while events := examiner.reads.journal(examiner.incarnation, after):
        for event in events:
            if event.revision > after + 1:
                _confirm_hole(examiner, after + 1, event.revision)
            after = event.revision
        yield after
    if after < head.revision:
        _confirm_hole(examiner, after + 1, head.revision + 1)
        yield head.revision


def _confirm_hole(examiner: Examiner, first: int, following: int) -> None:
    revisions = range(first, min(following, first + MAX_KEYS))

    def judge(snapshot: Snapshot) -> list[Trouble]:
        absent = [
            revision
            for revision in revisions
            if revision <= snapshot.head.revision and snapshot.get(event_key(revision), JournalEvent) is None
        ]
        if not absent:
            return []
        more = "" if following <= first + MAX_KEYS else f" and perhaps more up to {following - 1}"
        return [Trouble(Damage.JOURNAL, f"no event of the revisions {absent[0]} to {absent[-1]} ({len(absent)}){more}")]

    examiner.confirm([event_key(revision) for revision in revisions], judge)


def check_replay(examiner: Examiner) -> None:
    """Replay the journal, and compare with the table, item by item.

    Memory: that of the stream's items; longer journals than MAX_REPLAYED are left out, and count as unread. Cost: a
    Query a page of both, and a read of one moment for each 99 items that differ.
    """
    snapshot = examiner.reads.at_once(examiner.incarnation, [])
    if snapshot is None or not snapshot.head.journal_from:
        return
    revision = snapshot.head.revision
    if revision > MAX_REPLAYED:
        examiner.unread += 1
        return
    try:
        state = replay(examiner.reads.all_changes(examiner.incarnation, revision))
    except NotRecordedError:
        examiner.unsettled += 1  # an event does not show yet; one that is missing is `check_journal`'s to find
        return
    except (ConflictError, CorruptionError) as err:
        examiner.record(Trouble(Damage.REPLAY, f"the journal cannot be replayed: {err}"))
        return
    if state.head is None or state.head.revision != revision:
        return  # a hole, which `check_journal` finds
    expected = _items(state)
    suspects = []
    for row in examiner.reads.all_rows(examiner.incarnation, "", row_key):
        key = row_key(row)
        if not key.startswith("event#") and expected.pop(key, None) != row:
            suspects.append(key)
    suspects += expected
    by_key = _items(state)
    for start in range(0, len(suspects), MAX_KEYS):
        _confirm_items(examiner, revision, suspects[start : start + MAX_KEYS], by_key)


def _confirm_items(examiner: Examiner, revision: int, keys: list[str], expected: dict[str, Row]) -> None:
    def judge(snapshot: Snapshot) -> list[Trouble]:
        if snapshot.head.revision != revision:
            examiner.unsettled += 1
            return []
        wrong = [key for key in keys if snapshot.items.get(key) != expected.get(key)]
        if not wrong:
            return []
        return [Trouble(Damage.REPLAY, f"{len(wrong)} items differ from the journal, the first is {wrong[0]}")]

    examiner.confirm(keys, judge)


def _items(state: ManifestState) -> dict[str, Row]:
    """Return a state's items by sort key, without the journal."""
    rows: list[Row] = [
        *state.entries.values(),
        *state.gaps.values(),
        *state.missing.values(),
        *state.tombstones.values(),
        *state.holds.values(),
        *state.erasures.values(),
    ]
    found = {row_key(row): row for row in rows}
    return found if state.head is None else {**found, LOG_HEAD: state.head}
