"""A stream's manifest as one state, with readers that see all of it, for tests of plans."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.manifest.change import MAX_ITEMS, Change, PutTombstone
from coldstream.manifest.commit import Neighbourhood, after_raise, is_append, is_settled, plan_commit
from coldstream.manifest.compaction import Unfinished, after_replacement, plan_removal, plan_replacement
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Hold, Loss, Quarantine
from coldstream.manifest.groups import Group
from coldstream.manifest.missing import with_reason
from coldstream.manifest.recorded import change_of, recorded
from coldstream.manifest.removal import plan_prefix_removal
from coldstream.manifest.sparse import SparseIndex, SparsePoint, greatest
from coldstream.manifest.state import ManifestState, replay
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.histories import written_key

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
AT, DUE = TimestampMs(1_763_700_000_000), TimestampMs(1_763_800_000_000)


def entry(first: int, following: int, *, time: int = 0, generation: int = 0) -> FragmentEntry:
    """Make an entry of one chunk, of an object of its own."""
    at = TimestampMs(time)
    return FragmentEntry(
        first_offset=Offset(first),
        next_offset=Offset(following),
        first_timestamp=at,
        last_timestamp=at,
        greatest_timestamp=at,
        epoch=Epoch(1),
        chunks=1,
        records=following - first,
        messages=following - first,
        data_bytes=100,
        object_bytes=182,
        key=f"{first:020}-{following}.{generation}.fragment",
        crc32=first,
        sparse=SparseIndex((SparsePoint(ChunkId(first), 0, 8, at, at),)),
        last_user_chunk=None,
        segment_offset=Offset(first),
        generation=generation,
    )


def hold(first: int, following: int | None, name: str = "case-7") -> Hold:
    """Make a hold."""
    end = None if following is None else Offset(following)
    return Hold(name, Offset(first), end, "a lawsuit", "alice", AT)


class World:
    """The state after every change so far, and the changes."""

    def __init__(self, *spans: tuple[int, int]) -> None:
        self.state = ManifestState()
        self.changes: list[Change] = []
        self.buried: set[str] = set()
        for number, (first, following) in enumerate(spans):
            self.commit(entry(first, following, time=number))

    @property
    def head(self) -> Head:
        """The head of now."""
        return Head(STREAM) if self.state.head is None else self.state.head

    @property
    def log(self) -> list[FragmentEntry]:
        """The log of now."""
        return [self.state.entries[end] for end in sorted(self.state.entries)]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The offsets of the entries."""
        return [(one.first_offset, one.next_offset) for one in self.log]

    def apply(self, change: Change) -> None:
        """Write a change, through the form in which the journal has it."""
        assert change.items <= MAX_ITEMS
        keys = [written_key(write) for write in change.writes]
        assert len(keys) == len(set(keys)), "two actions on one item"
        assert change_of(STREAM, change.event, recorded(change)) == change
        self.state = self.state.after(change)
        self.changes.append(change)
        self.buried |= {one.tombstone.key for one in change.of(PutTombstone)}
        self.check()

    def commit(self, new: FragmentEntry) -> None:
        """Add an entry, in as many changes as it takes."""
        around = self.around(new)
        while True:
            change = plan_commit(around, new, AT)
            if change.new_entry is not None:
                assert new.key not in self.buried, "a key that has a tombstone is named again"
            self.apply(change)
            if change.new_entry is not None:
                return
            around = after_raise(around, change)

    def around(self, new: FragmentEntry) -> Neighbourhood:
        """Read all that a commit needs."""
        missing = list(self.state.missing.values())
        if is_append(self.head, new):
            return Neighbourhood(self.head, missing=missing)
        before = [old for old in self.log if old.next_offset <= new.first_offset]
        after = [old for old in self.log if old.next_offset > new.first_offset]
        settled = next((number for number, old in enumerate(after) if is_settled(old, new)), len(after))
        return Neighbourhood(self.head, before[-1] if before else None, after[: settled + 1], missing)

    def compact(self, entries: Sequence[FragmentEntry], *, generation: int, changes: int | None = None) -> None:
        """Merge neighbours, in all changes or only the first few."""
        group = Group(tuple(entries))
        key = f"merged-{group.first_offset}-{group.next_offset}.{generation}"
        merged = group.merged(key=key, generation=generation, object_bytes=500, crc32=7)
        change = plan_replacement(self.head, group.entries, group, merged, at=AT, due_at=DUE)
        self.apply(change)
        unfinished = after_replacement(change, group.entries)
        while unfinished is not None and (changes is None or changes > 1):
            changes = None if changes is None else changes - 1
            change = plan_removal(self.head, unfinished, at=AT, due_at=DUE)
            self.apply(change)
            unfinished = unfinished.after(change)

    def finish(self) -> None:
        """Finish a compaction that is under way."""
        while self.head.compacting is not None:
            merged = self.state.entries[self.head.compacting]
            log = [one for one in self.log if merged.first_offset <= one.first_offset]
            unfinished = Unfinished.of(self.head, log)
            assert unfinished is not None
            self.apply(plan_removal(self.head, unfinished, at=AT, due_at=DUE))

    def remove(self, count: int, *, why: str = "policy", by: str | None = None) -> None:
        """Remove the first entries."""
        log = self.log
        following = log[count] if count < len(log) else None
        gaps, holds = list(self.state.gaps.values()), list(self.state.holds.values())
        self.apply(
            plan_prefix_removal(self.head, log[:count], following, gaps, holds, at=AT, due_at=DUE, why=why, by=by)
        )

    def check(self) -> None:
        """Hold the state against what follows from its entries."""
        head, state = self.head, self.state
        merged = None if head.compacting is None else state.entries[head.compacting]
        within = [
            one
            for one in self.log
            if merged is not None and merged.first_offset <= one.first_offset and one.next_offset < merged.next_offset
        ]
        assert (merged is None) == (not within)
        chain = [one for one in self.log if one not in within]
        holes: list[Gap] = []
        prior: Offset | None = None
        latest = head.floor_timestamp
        for one in chain:
            linked = within[0] if one is merged else one
            assert linked.prior_offset == prior, "wrong link"
            # A timestamp may be raised before the entry comes that it is of, or stay when its entry is given up.
            assert greatest((linked.prior_timestamp, latest)) == linked.prior_timestamp, "time too small"
            assert one.first_offset >= head.floor, "below the floor"
            if prior is not None and prior != one.first_offset:
                assert prior < one.first_offset, "overlap"
                holes.append(Gap(prior, one.first_offset))
            prior, latest = one.next_offset, greatest((latest, one.greatest_timestamp))
        running = [one.running_timestamp for one in self.log]
        assert running == sorted(running), "running timestamps fall"
        known = list(state.missing.values())
        assert sorted((gap.first_offset, gap.next_offset) for gap in state.gaps.values()) == [
            (hole.first_offset, hole.next_offset) for hole in holes
        ]
        assert all(gap == with_reason(gap, known) for gap in state.gaps.values())
        assert (head.fragments, head.object_bytes) == (len(self.log), sum(one.object_bytes for one in self.log))
        for total in ("chunks", "records", "messages", "data_bytes"):
            assert getattr(head, total) == sum(getattr(one, total) for one in chain), total
        assert (head.gaps, head.holds, head.erasures) == (len(state.gaps), len(state.holds), len(state.erasures))
        assert head.losses == sum(isinstance(one, Loss) for one in known)
        copies = [one.copies for one in known if isinstance(one, Quarantine)]
        assert (head.quarantined, head.quarantined_again) == (len(copies), sum(copies) - len(copies))
        assert head.first_offset == (chain[0].first_offset if chain else None)
        assert head.next_offset == (chain[-1].next_offset if chain else head.floor or None)
        assert greatest((head.greatest_timestamp, latest)) == head.greatest_timestamp
        if self.log:
            assert head.first_timestamp == chain[0].first_timestamp
        keys = [one.key for one in self.log]
        assert len(keys) == len(set(keys))
        assert not self.buried & set(keys), "a live object has a tombstone"
        assert [event.revision for event in state.events.values()] == list(range(1, head.revision + 1))

    def check_replay(self) -> None:
        """The journal alone gives the state."""
        replayed = replay((change.event, change_of(STREAM, change.event, recorded(change))) for change in self.changes)
        assert replayed == self.state
