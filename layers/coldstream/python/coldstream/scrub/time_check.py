"""The index by time: every entry that has not changed for a while is where its running timestamp belongs."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.change import Change
from coldstream.manifest.entry import FragmentEntry, JournalEvent
from coldstream.scrub.account import Account, boundary_of, shows_all
from coldstream.scrub.damage import Damage
from coldstream.scrub.entry_checks import SETTLED_MS
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.mend import plan_same_links
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble
from coldstream.store.sortkeys import TIME_OF_HEAD, event_key, log_key, time_key
from coldstream.units import MAX_OFFSET, Offset, TimestampMs


def check_times(examiner: Examiner, account: Account | None, after: Offset) -> Iterator[Offset]:
    """Look entries up in the index by time, from an offset on; yield where to go on.

    The index lags behind the table, without a promise by how much. So only entries below the account's boundary count,
    or all, if the stream has not changed for an hour. Cost: two Queries a page.
    """
    if account is None:
        return
    boundary = account.boundary
    snapshot = examiner.reads.at_once(examiner.incarnation, [event_key(account.revision)])
    last = None if snapshot is None else snapshot.get(event_key(account.revision), JournalEvent)
    if last is not None and last.at + SETTLED_MS <= examiner.now():
        boundary = Offset(MAX_OFFSET)
    while True:
        page = examiner.reads.log(examiner.incarnation, after)
        settled = [entry for entry in page.entries if entry.next_offset <= boundary]
        if settled:
            _check_page(examiner, account, settled)
            after = settled[-1].next_offset
            yield after
        if len(settled) < len(page.entries) or page.head is not None or not page.entries:
            return


def _check_page(examiner: Examiner, account: Account, entries: list[FragmentEntry]) -> None:
    places, reach = _places(examiner, entries[0].running_timestamp)
    for entry in entries:
        place = _place(entry)
        if place in places or place > reach:
            continue  # past the end of the index's page, the next page of entries begins there
        # Once more, alone: many entries of one timestamp may have pushed it off the page.
        again, end = _places(examiner, entry.running_timestamp)
        if place not in again and place <= end:
            _confirm(examiner, account, entry)


def _places(examiner: Examiner, timestamp: TimestampMs) -> tuple[set[str], str]:
    """Return the places in the index from a timestamp on, and how far that reaches."""
    page = examiner.reads.log_by_time(examiner.incarnation, timestamp)
    places = {_place(entry) for entry in page.entries}
    return places, TIME_OF_HEAD if page.head is not None else max(places, default="")


def _place(entry: FragmentEntry) -> str:
    return time_key(entry.running_timestamp, entry.next_offset)


def _confirm(examiner: Examiner, account: Account, entry: FragmentEntry) -> None:
    def judge(snapshot: Snapshot) -> list[Trouble]:
        if snapshot.entry(entry.next_offset) != entry or _place(entry) in _places(examiner, entry.running_timestamp)[0]:
            return []
        # Changes since the account was opened may be on their way to the index.
        since = examiner.reads.journal(examiner.incarnation, account.revision)
        is_told = shows_all(since, account.revision, snapshot.head)
        if not is_told or boundary_of(snapshot.head, since) < entry.next_offset:
            return []
        detail = f"it is not found at its running timestamp, {entry.running_timestamp} ms"
        return [Trouble.of(Damage.TIME_INDEX, entry, detail)]

    def plan(snapshot: Snapshot, _: Trouble) -> Change | None:
        return plan_same_links(snapshot.head, entry, examiner.now())

    examiner.confirm([log_key(entry.next_offset)], judge, plan)
