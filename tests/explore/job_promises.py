"""What is held against each change of the jobs, whoever makes it.

One worker has a job; how far it is never goes back, and counts what was done once; an ended job stays ended; what
somebody was told stays so; an open job is found by workers; and a key has one job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.jobs.job import JOB_KEYS, JOBS, OPEN_JOBS, Job, JobState, Wish
from coldstream.jobs.log_lines import partition_of
from coldstream.jobs.open_marks import mark_of
from coldstream.manifest.state_item import StateItem
from coldstream.plain_json import read_json
from tests.explore.jobs import JOB, KEY, PARTS, end_of, part_key
from tests.explore.machine import (
    BUCKET,
    FAULTS,
    LOSSES,
    NAMES,
    NODES,
    REFUSALS,
    TOLD,
    Machine,
    RequestFacts,
    State,
    Told,
    Violation,
)
from tests.explore.names_store import NamesState
from tests.explore.requests import Part, Request
from tests.explore.schedules import Fate, Move
from tests.explore.world import World

LOG = "#job-log#"
_STATES = 4
"""Which of the parts of a NamesState has the state items."""

WORKERS = "work", "flawed", "straggle"
LOST = 1
"""The outcome of a request of which nothing is heard, and nothing was done."""

Facts = frozenset[tuple[str, str]]


class JobsMachine(Machine):
    """A machine that holds each change of the jobs, and what workers do, against what jobs promise."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._held: set[tuple[int, ...]] = set()

    def _carry_out(self, state: State, actor: int, facts: RequestFacts) -> Iterator[tuple[State, int]]:
        for after, answer in super()._carry_out(state, actor, facts):
            if after[NAMES] != state[NAMES]:
                self._judge(state, after, actor)
            yield after, answer

    def _fall_short(self, state: State, actor: int, facts: RequestFacts) -> Iterator[tuple[Move, State]]:
        """Yield also that a write of a job never arrives, and nothing is heard of it."""
        yield from super()._fall_short(state, actor, facts)
        if facts.part is Part.NAMES and facts.writes and state[FAULTS] % REFUSALS >= LOSSES:
            self.trying = Move(actor, Fate.HEARS_NOTHING, LOST)
            yield self.trying, self._go((*state[:FAULTS], state[FAULTS] - LOSSES, *state[NODES:]), actor, self._unknown)

    def _judge(self, before: State, after: State, actor: int) -> None:
        key = before[NAMES], after[NAMES], before[BUCKET], before[TOLD], actor
        if key not in self._held:
            old, new = (Jobs.of(self.names.state(state[NAMES])) for state in (before, after))
            held = self.bucket.state(before[BUCKET]).objects
            old_and_new(old, new, self.world.roles[actor].name, self._facts_of(before))
            new.hold(frozenset(held), self._facts_of(before))
            self._held.add(key)

    def _silent(self, state: State, actor: int, request: Request) -> tuple[State, int]:
        after, answer = super()._silent(state, actor, request)
        if after[TOLD] != state[TOLD]:
            facts, there = self._facts_of(after), Jobs.of(self.names.state(after[NAMES]))
            if request.method == "sends":
                sent(there, str(request.args[0]), self.world.roles[actor].name)
            there.hold(frozenset(self.bucket.state(after[BUCKET]).objects), facts)
        return after, answer

    def _facts_of(self, state: State) -> Facts:
        told: Told = self.told.values[state[TOLD]]  # type: ignore[assignment]
        return told.facts


@dataclass(frozen=True, slots=True)
class Jobs:
    """All items of jobs, by partition and key, and the jobs among them by id."""

    items: dict[tuple[str, str], StateItem]
    jobs: dict[str, Job]

    @classmethod
    def of(cls, names: NamesState) -> Jobs:
        """Read them."""
        items: dict[tuple[str, str], StateItem] = names.items[_STATES]
        found = {key: Job.from_item(one) for (partition, key), one in items.items() if partition == JOBS}
        return cls(items, found)

    def hold(self, held: frozenset[str], facts: Facts) -> None:
        """Hold what is true of each state, while the target holds some parts, and somebody was told something."""
        for job in self.jobs.values():
            at = int(job.cursor.get("at", 0))
            lacking = {part_key(job.id, part) for part in range(at)} - held
            _hold(not lacking, f"told as done, and not at the target: {sorted(lacking)}")
            _hold(job.progress.messages == at, f"{at} are done, and {job.progress.messages} are counted")
            _hold(job.state.has_ended or _mark(job) in self.items, f"no worker finds {job.id}, which is {job.state}")
            _hold(job.state is not JobState.SUCCEEDED or at == PARTS, f"done, at part {at} of {PARTS}")
            lines = sum(partition == partition_of(job.id) for partition, _ in self.items)
            _hold(lines == job.lines, f"{lines} lines are there, of {job.lines} that were written")
        self._hold_keys(facts)
        self._hold_told(facts)

    def _hold_keys(self, facts: Facts) -> None:
        told: dict[str, str] = {}
        for what, fact in facts:
            if what == "created":
                job_id, key, name = fact.split(" ")
                there = self.jobs.get(job_id)
                _hold(there is None or there.spec.name == name, f"{job_id} is told as what was to be created: {name}")
                is_one = key == KEY or told.setdefault(key, job_id) == job_id  # the job of KEY may be deleted
                _hold(is_one, f"of one key, two were told of jobs: {job_id}, {told.get(key)}")
        of_key = [job.key_hash for job in self.jobs.values() if job.key_hash and not job.state.has_ended]
        _hold(len(of_key) == len({*of_key}), "one key has several open jobs")
        for (partition, _), item in self.items.items():
            if partition == JOB_KEYS:
                _hold(read_json(item.data)["job"] in self.jobs, "a key is of no job")

    def _hold_told(self, facts: Facts) -> None:
        took: dict[str, str] = {}
        for what, fact in facts:
            if what == "took":
                epoch, _, name = fact.rpartition(" ")
                _hold(took.setdefault(epoch, name) == name, f"two have {epoch}: {took[epoch]} and {name}")
        told = {fact for what, fact in facts if what == "told"}
        for job in self.jobs.values():
            is_obeyed = job.state.has_ended or job.wish is Wish.CANCEL
            _hold("cancel" not in told or is_obeyed, f"cancelled, somebody was told, and it is {job.state}")
            is_paused = is_obeyed or job.state is JobState.PAUSED or job.wish is Wish.PAUSE or self._is_resumed()
            _hold("pause" not in told or is_paused, f"paused, somebody was told, and it is {job.state}")
            _hold("edit" not in told or end_of(job) == "9", "edited, somebody was told, and the edit is lost")
        _hold(not told & {"remove", "drop"} or JOB not in self.jobs, "deleted, somebody was told, and it is there")

    def _is_resumed(self) -> bool:
        return any(b"resume" in item.data for (partition, _), item in self.items.items() if partition.startswith(LOG))


def old_and_new(old: Jobs, new: Jobs, who: str, facts: Facts) -> None:
    """Hold a change that somebody made against what he may change."""
    for job_id, before in old.jobs.items():
        after = new.jobs.get(job_id)
        if after is None:
            _hold(before.state.has_ended, f"deleted, while it was {before.state}")
            left = [key for partition, key in new.items if partition == OPEN_JOBS and key.startswith(f"{job_id}#")]
            _hold(not left, f"deleted, and its marks are left: {left}")
            continue
        if after != before:
            _changed(before, after, who, facts)
    for at, item in new.items.items():
        was = old.items.get(at)
        _hold(was is None or was == item or not at[0].startswith(LOG), f"a line of a log is written over: {at[1]}")


def _changed(before: Job, after: Job, who: str, facts: Facts) -> None:
    is_worker = who.startswith(WORKERS)
    _hold(after.revision == before.revision + 1, "the revision does not rise by one")
    is_over = before.state.has_ended and before.state is not JobState.FAILED
    _hold(not is_over or after.state is before.state, f"{before.state}, and goes on: {after.state}")
    _hold(after.epoch in {before.epoch, before.epoch + is_worker}, f"from epoch {before.epoch} to {after.epoch}")
    if after.epoch == before.epoch:
        has = before.lease is not None and before.lease.worker == who
        did = (before.cursor, before.progress, before.skipped) != (after.cursor, after.progress, after.skipped)
        _hold(not did or has, f"{who} tells how far it is, and {before.lease} has the job")
        _hold(not is_worker or has, f"{who} writes, and {before.lease} has the job")
    was, now = (int(job.cursor.get("at", 0)) for job in (before, after))
    _hold(now >= was and after.progress.done >= before.progress.done, f"progress goes back from {was} to {now}")
    _hold(who.startswith("edit") or after.spec == before.spec, f"{who} undoes an edit")
    _hold(before.wish is not Wish.CANCEL or after.wish is Wish.CANCEL or after.state.has_ended, "a cancel is forgotten")
    if after.state is JobState.SUCCEEDED:
        _hold(("did", f"{after.id} {end_of(after)}") in facts, "done, and not as it was edited")


def sent(there: Jobs, fact: str, who: str) -> None:
    """Hold a part that is just being sent against who has the job."""
    job_id, _, epoch = fact.partition(" ")
    job = there.jobs.get(job_id)
    has = job is not None and job.state is JobState.RUNNING and job.epoch == int(epoch)
    _hold(has and job.lease.worker == who, f"{who} sends, and has the job no more")  # type: ignore[union-attr]


def _mark(job: Job) -> tuple[str, str]:
    mark = mark_of(job)
    return mark.partition, mark.key


def _hold(holds: bool, told: str) -> None:  # noqa: FBT001  a condition
    if not holds:
        raise Violation(f"jobs: {told}")
