"""The kind `compact`: small fragments become large ones, or compressed ones, stream after stream, group after group.

A group is an object that is written, and then committed. The position in a stream is the offset after the last group
that was settled. A run that died between the two leaves an object that nothing names; one that died within a commit
leaves it to be finished, by this run or by any other writer (`lifecycle.unfinished`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.compact.commit import CommitOutcome, commit
from coldstream.compact.plan import find_groups, iter_settled
from coldstream.compact.write import write_group
from coldstream.errors import ColdstreamError, StoppedError
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import CompactSpec
from coldstream.lifecycle.sweep import sweep
from coldstream.lifecycle.unfinished import finish, read_span
from coldstream.manifest.entry import Encoding, FragmentEntry, Head
from coldstream.manifest.groups import CompactionPolicy, Group, plan_groups
from coldstream.manifest.holding import held
from coldstream.manifest.stream import StreamId
from coldstream.store.holding import read_holds
from coldstream.units import Offset, TimestampMs, parse_duration, parse_size
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.turns import StreamTurns

MOST_SUPERSEDED = 5
"""Groups in a row that others change first, at one place, until the run leaves them to those others."""


def run_compact(run: JobRun, archive: UpkeepArchive) -> RunEnd:
    """Compact the streams of a job. Raises what is worth another attempt; what fails for good is skipped."""
    spec = run.spec
    assert isinstance(spec, CompactSpec)
    older_than = TimestampMs(run.began_at - round(parse_duration(spec.older_than) * 1000))
    policy = CompactionPolicy(older_than, parse_size(spec.target_size), Encoding(spec.encoding))
    turns = StreamTurns(run, archive.stores.table, spec)
    work = _StreamCompaction(run, archive, turns, policy, spec.level)
    for stream in turns:
        head = turns.live_head(stream)
        if head is not None and not work.compact(stream):
            return Interrupted()
        turns.done(stream, 0 if head is None else head.fragments)
    if not turns.is_complete:
        return Interrupted()
    turns.finish()
    before, after = turns.sums.get("fragments", 0), turns.sums.get("fragments_after", 0)
    return Finished(f"{before} fragments became {after}")


@dataclass(frozen=True, slots=True)
class _StreamCompaction:
    """What a run does with each stream."""

    run: JobRun
    archive: UpkeepArchive
    turns: StreamTurns
    policy: CompactionPolicy
    level: int

    def compact(self, stream: StreamId) -> bool:
        """Compact a stream from where the run is in it; return False if it is to stop before the end."""
        stores = self.archive.stores
        finish(stores.table, stream.incarnation, stores.now, stores.grace_ms)
        for group in self._groups(stream):
            if self.run.should_stop():
                return False
            try:
                self._settle(stream, group)
            except StoppedError:
                return False
        head = self.turns.live_head(stream)
        if head is None:
            return True
        self._tell_held(stream, head)
        return self._sweep(stream)

    def _groups(self, stream: StreamId) -> Iterator[Group]:
        """Yield the groups, planned anew from where the last was if others changed that one first."""
        superseded = 0
        while True:
            position = Offset(self.turns.within.get("offset", 0))
            for group in find_groups(self.archive.stores.table, stream.incarnation, self.policy, position):
                yield group
                reached = Offset(self.turns.within.get("offset", 0))
                if reached < group.next_offset:
                    superseded = 1 if reached > position else superseded + 1
                    break
            else:
                return
            if superseded == MOST_SUPERSEDED:
                # Whoever changes them all the time compacts or erases them.
                self.run.say(f"{stream}: others change the fragments from offset {group.first_offset} on")
                self._move(group)
                superseded = 0

    def _settle(self, stream: StreamId, group: Group) -> None:
        """Write and commit a group, or tell why not. Raises StoppedError, and what is worth another attempt."""
        stores, incarnation = self.archive.stores, stream.incarnation
        head = stores.table.head(incarnation)
        try:
            merged = write_group(
                stores.objects,
                stores.keys,
                incarnation,
                group,
                self.policy.encoding,
                level=self.level,
                least_generation=0 if head is None else head.generation,
                should_stop=self.run.should_stop,
            )
            outcome = commit(stores.table, incarnation, group, merged.entry, now=stores.now, grace_ms=stores.grace_ms)
        except ColdstreamError as err:
            if err.retryable:
                raise
            if self._is_there(stream, group):
                where = f"{stream}, offsets {group.first_offset} to {group.next_offset - 1}"
                self.run.skip(where, len(group.entries), f"{err} (a scrub tells more)")
                self._move(group)
            return
        if outcome is CommitOutcome.COMMITTED:
            self._move(
                group,
                messages=sum(entry.messages for entry in group.entries),
                bytes_=group.object_bytes,
                fragments=len(group.entries),
                fragments_after=1,
            )

    def _move(self, group: Group, *, messages: int = 0, bytes_: int = 0, **sums: int) -> None:
        done = self.turns.within.get("done", 0) + len(group.entries)
        self.turns.move(
            {"offset": group.next_offset, "done": done}, done=done, messages=messages, bytes_=bytes_, **sums
        )

    def _is_there(self, stream: StreamId, group: Group) -> bool:
        """Tell whether the log still names all objects of a group; else others were first, and nothing is wrong."""
        table = self.archive.stores.table
        span = read_span(table, stream.incarnation, group.first_offset, group.next_offset)
        keys = {entry.key for entry in span}
        return all(entry.key in keys for entry in group.entries)

    def _tell_held(self, stream: StreamId, head: Head) -> None:
        """Tell of the fragments that would be compacted if no hold protected them. Cost: nothing without holds."""
        if not head.holds:
            return
        table = self.archive.stores.table
        holds = read_holds(table, head)
        groups = plan_groups(iter_settled(table, stream.incarnation), self.policy)
        found: dict[str, list[FragmentEntry]] = {}
        for entry in (entry for group in groups for entry in group.entries):
            hold = held(holds, entry.first_offset, entry.next_offset)
            if hold is not None:
                found.setdefault(hold.id, []).append(entry)
        for hold_id, entries in found.items():
            self.run.skip(
                f"{stream}: {len(entries)} fragments", len(entries), f"the legal hold {hold_id} protects them"
            )

    def _sweep(self, stream: StreamId) -> bool:
        """Delete what is due of a stream, as the command does; return False if the run is to stop before the end."""
        if not self.archive.may_sweep:
            return True
        report = sweep(self.archive.stores, stream.incarnation, should_stop=self.run.should_stop)
        for key in report.kept:
            self.run.say(f"{stream}: not deleted, because the manifest names it: {key}")
        for failure in report.failures:
            self.run.say(f"{stream}: not deleted: {failure.key}: {failure.reason}")
        return not report.is_stopped
