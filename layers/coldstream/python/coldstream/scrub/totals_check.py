"""The head's totals against the sums over the log."""

from __future__ import annotations

from itertools import pairwise

from coldstream.manifest.change import Change
from coldstream.manifest.entry import FragmentEntry, JournalKind
from coldstream.scrub.account import RECENT_CHANGES, Account, Sums, boundary_of, shows_all
from coldstream.scrub.damage import Damage
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.mend import plan_head
from coldstream.scrub.reads import MAX_KEYS
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble, differs
from coldstream.store.sortkeys import log_key

MAX_FRESH = 1000
"""Entries past the boundary that are read as of one moment: eleven requests, between which nothing may change."""

ATTEMPTS = 3


def begin_account(examiner: Examiner) -> Account | None:
    """Open the account of a stream. Cost: two requests. None if the newest changes do not all show."""
    for _ in range(ATTEMPTS):
        snapshot = examiner.reads.at_once(examiner.incarnation, [])
        if snapshot is None:
            return None
        revision = snapshot.head.revision
        after = max(0, revision - RECENT_CHANGES)
        recent = examiner.reads.journal(examiner.incarnation, after)
        if shows_all(recent, after, snapshot.head):
            return Account(revision, boundary_of(snapshot.head, recent))
    return None


def check_totals(examiner: Examiner, account: Account | None) -> None:
    """Close the account of a walked log, and compare.

    Leaves the totals unsettled if entries below the boundary were changed since, while a compaction is unfinished, or
    if changes come too fast. Cost: a Query a page of changes since, and what the entries past the boundary cost.
    """
    if account is None:
        examiner.unsettled += 1
        return
    for _ in range(ATTEMPTS):
        snapshot = examiner.reads.at_once(examiner.incarnation, [])
        if snapshot is None or snapshot.head.compacting is not None:
            break
        if not _is_untouched(examiner, account, snapshot):
            break
        fresh = _fresh(examiner, account)
        if fresh is None:
            break
        last = examiner.reads.entry_before(examiner.incarnation, account.boundary) if account.sums.fragments else None
        if _settle(examiner, account, snapshot.head.revision, last, fresh):
            return
    examiner.unsettled += 1


def _is_untouched(examiner: Examiner, account: Account, snapshot: Snapshot) -> bool:
    after = account.revision
    while events := examiner.reads.journal(examiner.incarnation, after):
        if events[0].revision != after + 1 and snapshot.head.journal_from:
            return False
        # A removed prefix counts here: its entries were in the sums.
        if boundary_of(snapshot.head, events) < account.boundary or any(
            event.kind is JournalKind.FRAGMENTS_REMOVED for event in events
        ):
            return False
        after = events[-1].revision
    return after >= snapshot.head.revision or not snapshot.head.journal_from


def _fresh(examiner: Examiner, account: Account) -> list[FragmentEntry] | None:
    """Return the entries past the boundary as they show, None if they are too many."""
    found: list[FragmentEntry] = []
    at = account.boundary
    while True:
        page = examiner.reads.log(examiner.incarnation, at)
        found += page.entries
        if len(found) > MAX_FRESH:
            return None
        if page.head is not None or not page.entries:
            return found
        at = page.entries[-1].next_offset


def _settle(
    examiner: Examiner, account: Account, revision: int, last: FragmentEntry | None, fresh: list[FragmentEntry]
) -> bool:
    """Judge the sums as of a revision; return whether everything could be read as of it."""
    entries: list[FragmentEntry] = [] if last is None else [last]
    keys = [log_key(entry.next_offset) for entry in fresh]
    for start in range(0, len(keys), MAX_KEYS):
        snapshot = examiner.reads.at_once(examiner.incarnation, keys[start : start + MAX_KEYS])
        if snapshot is None or snapshot.head.revision != revision:
            return False
        now = [snapshot.entry(entry.next_offset) for entry in fresh[start : start + MAX_KEYS]]
        entries += [entry for entry in now if entry is not None]
    # Links prove that no entry is left out.
    if any(entry.prior_offset != before.next_offset for before, entry in pairwise(entries)):
        return False
    if entries and last is None and entries[0].prior_offset is not None:
        return False
    sums = account.sums
    for number, entry in enumerate(entries):
        if last is None or number > 0:
            sums = sums.plus(entry, entries[number - 1] if number else None)
    tail = entries[-1].next_offset if entries else None
    is_read = True

    def judge(snapshot: Snapshot) -> list[Trouble]:
        nonlocal is_read
        head = snapshot.head
        # Entries up to the tail, or a log without any: else some do not show yet.
        is_whole = head.first_offset is None if tail is None else tail == head.next_offset
        is_read = head.revision == revision and is_whole
        told = Sums.of_head(head)
        if not is_read or told == sums:
            return []
        return [Trouble(Damage.TOTALS, differs("the head's totals", expected=sums, found=told))]

    def plan(snapshot: Snapshot, _: Trouble) -> Change | None:
        return plan_head(sums.written_to(snapshot.head), examiner.now(), "totals")

    before = len(examiner.findings)
    examiner.confirm([], judge, plan)
    return is_read or len(examiner.findings) > before
