"""The walk along the log: each entry against its object, each pair of neighbours, and the sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from coldstream.manifest.change import Change
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.scrub.account import Account
from coldstream.scrub.damage import Damage
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.fragments import check_fragment
from coldstream.scrub.log_checks import empty_troubles, entry_troubles, first_troubles, last_troubles, pair_troubles
from coldstream.scrub.mend import plan_gap, plan_head, plan_relink
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble
from coldstream.store.sortkeys import gap_key, log_key
from coldstream.units import Offset


@dataclass
class LogWalk:
    """Walks one log from `reached` on: all entries that end at or before it were checked, and are in the account.

    With `until`, it ends after the last entry that ends at or before that, and leaves the end of the log alone.
    """

    examiner: Examiner
    head: Head
    account: Account | None
    reached: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    before: FragmentEntry | None = None
    until: Offset | None = None

    def run(self) -> Iterator[Offset]:
        """Check entry after entry; yield the offset up to which all is checked, after each."""
        reads, incarnation = self.examiner.reads, self.examiner.incarnation
        if self.reached and self.before is None:
            self.before = reads.entry_before(incarnation, self.reached)
        while True:
            page = reads.log(incarnation, self.reached)
            self.head = page.head or self.head
            gaps = self._gaps(page.entries)
            for entry in page.entries:
                if self.until is not None and entry.next_offset > self.until:
                    return
                self._check(entry, gaps)
                yield self.reached
            if page.head is not None or not page.entries:
                break
        if self.until is None:
            self._check_end()

    def _gaps(self, entries: tuple[FragmentEntry, ...]) -> dict[Offset, Gap]:
        """Return the gap items of a page's holes, by first offset. Cost: none if the page has no hole."""
        chain = [*([self.before] if self.before else []), *entries]
        holes = [one.next_offset for one, other in pairwise(chain) if one.next_offset < other.first_offset]
        found: dict[Offset, Gap] = {}
        at = holes[0] if holes else None
        while at is not None:
            page = self.examiner.reads.gaps(self.examiner.incarnation, at)
            found |= {gap.first_offset: gap for gap in page}
            at = Offset(page[-1].first_offset + 1) if page and page[-1].first_offset < holes[-1] else None
        return found

    def _check(self, entry: FragmentEntry, gaps: dict[Offset, Gap]) -> None:
        before = self.before
        gap = gaps.get(before.next_offset) if before is not None else None
        if any(_troubles(self.head, before, entry, gap)):
            settled = self._settle(before, entry)
            if settled is None:
                self._advance(entry.next_offset)
                return
            entry = settled
        checked = check_fragment(self.examiner, before, entry)
        if checked is None:
            self._advance(entry.next_offset)
            return
        if self.account is not None and checked.next_offset <= self.account.boundary:
            self.account = replace(self.account, sums=self.account.sums.plus(checked, before))
        self.before = checked
        self._advance(checked.next_offset)

    def _advance(self, reached: Offset) -> None:
        self.reached = max(self.reached, reached)

    def _settle(self, before: FragmentEntry | None, entry: FragmentEntry) -> FragmentEntry | None:
        """Look at an entry, the one before it and what its link names, as of one moment. None if it is gone."""
        keys = [log_key(entry.next_offset)]
        if before is not None:
            keys += [log_key(before.next_offset), gap_key(before.next_offset)]
        if entry.prior_offset is not None:
            keys.append(log_key(entry.prior_offset))

        def judge(snapshot: Snapshot) -> list[Trouble]:
            return list(_settled_troubles(snapshot, before, entry))

        def plan(snapshot: Snapshot, trouble: Trouble) -> Change | None:
            return self._plan(snapshot, trouble, before, entry)

        snapshot = self.examiner.confirm(keys, judge, plan)
        return entry if snapshot is None else snapshot.entry(entry.next_offset)

    def _plan(
        self, snapshot: Snapshot, trouble: Trouble, before: FragmentEntry | None, entry: FragmentEntry
    ) -> Change | None:
        now, prior = _of_moment(snapshot, before, entry)
        if now is None:
            return None
        at = self.examiner.now()
        if trouble.damage in {Damage.LINK, Damage.RUNNING_TIMESTAMP}:
            return plan_relink(snapshot.head, prior, now, at)
        if trouble.damage is Damage.HEAD_BOUNDS:
            first = replace(snapshot.head, first_offset=now.first_offset, first_timestamp=now.first_timestamp)
            return plan_head(first, at, "first offset of the log")
        if trouble.damage is Damage.GAP_MISSING and prior is not None:
            there = snapshot.gap(prior.next_offset)
            return plan_gap(snapshot.head, there, Gap(prior.next_offset, now.first_offset), at)
        return None

    def _check_end(self) -> None:
        last, head = self.before, self.head
        if not any(empty_troubles(head) if last is None else last_troubles(head, last)):
            return
        keys = [
            log_key(one) for one in (head.next_offset, None if last is None else last.next_offset) if one is not None
        ]

        def judge(snapshot: Snapshot) -> list[Trouble]:
            tail = snapshot.head.next_offset
            now = None if last is None else snapshot.entry(last.next_offset)
            # Another tail than was asked for, or a last entry that is gone: entries came or went meanwhile.
            if tail != head.next_offset or (now is None) != (last is None):
                return []
            if now is None:
                is_there = tail is not None and snapshot.entry(tail) is not None
                return [] if is_there else list(empty_troubles(snapshot.head))
            if tail is not None and tail != now.next_offset and snapshot.entry(tail) is not None:
                return []
            return list(last_troubles(snapshot.head, now))

        def plan(snapshot: Snapshot, _: Trouble) -> Change | None:
            now = None if last is None else snapshot.entry(last.next_offset)
            if now is None:
                empty = replace(snapshot.head, first_offset=None, first_timestamp=None)
                return plan_head(empty, self.examiner.now(), "bounds of an empty log")
            times = (snapshot.head.greatest_timestamp, now.running_timestamp)
            corrected = replace(
                snapshot.head,
                next_offset=now.next_offset,
                epoch=now.epoch,
                greatest_timestamp=max(time for time in times if time is not None),
            )
            return plan_head(corrected, self.examiner.now(), "tail of the log")

        self.examiner.confirm(keys, judge, plan)


def _troubles(head: Head, before: FragmentEntry | None, entry: FragmentEntry, gap: Gap | None) -> Iterator[Trouble]:
    yield from entry_troubles(head, entry)
    yield from first_troubles(head, entry) if before is None else pair_troubles(head, before, entry, gap)


def _settled_troubles(snapshot: Snapshot, before: FragmentEntry | None, entry: FragmentEntry) -> Iterator[Trouble]:
    """Yield what is wrong with an entry and the one before it, as they are at one moment."""
    now, prior = _of_moment(snapshot, before, entry)
    if now is None:
        return
    if before is not None and prior is None:
        yield from entry_troubles(snapshot.head, now)
        return
    link = now.prior_offset
    is_later = link is not None and (prior is None or link > prior.next_offset)
    if link is not None and is_later and (link != entry.prior_offset or snapshot.entry(link) is not None):
        return  # another entry came in between: a later pass meets both as neighbours
    yield from _troubles(snapshot.head, prior, now, None if prior is None else snapshot.gap(prior.next_offset))


def _of_moment(
    snapshot: Snapshot, before: FragmentEntry | None, entry: FragmentEntry
) -> tuple[FragmentEntry | None, FragmentEntry | None]:
    """Return an entry and the one before it as they are in a snapshot."""
    return snapshot.entry(entry.next_offset), None if before is None else snapshot.entry(before.next_offset)
