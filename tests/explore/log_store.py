"""A stream's partition as a value: what each request makes of it, and answers. The rules are the shipped double's.

Its number stands for all changes so far, in order, as the journal has them. While a transaction is being written, which
is until its writer goes on, others may see any part of it, in any order: such a request has several outcomes. A state
is then a partition, and the items of which an earlier state may still show.

If the index by time lags, each of its items shows any state that it has had since time passed last, also an older one
after a newer one, and nothing while it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from coldstream.errors import ColdstreamError, LostRaceError
from coldstream.manifest.change import Change
from coldstream.manifest.recorded import recorded
from coldstream.manifest.state import ManifestState
from coldstream.manifest.stream import StreamId
from coldstream.store.grace import MARGIN_MS
from coldstream.store.memory.rows import items_of
from coldstream.store.memory.table import MemoryTable
from coldstream.store.memory.visibility import BY_TIME, ShownPartition, changed
from coldstream.store.sortkeys import names_key, registry_key
from coldstream.units import TimestampMs
from tests.explore.index_lag import in_index, picks, states_in_index
from tests.explore.interning import Numbered
from tests.explore.requests import YIELDING, Refusal, Request
from tests.explore.table_pages import PAGES

ALL_SUBSETS = 3
"""Up to so many items that are being written show in any combination; of more, none, all, each alone, all but each."""

Outcome = tuple[int, int]
"""The state after a request, and its answer, both by number."""


@dataclass(frozen=True)
class LogState:
    """A partition after some changes, and the number of the state before the last one of these, -1 for the first.

    `since` is the time of the last one: when it was written, or, if its writer had slept for longer than the margin of
    the grace before that, the time that it carries.
    """

    state: ManifestState
    changes: int = 0
    change: Change | None = None
    before: int = -1
    since: TimestampMs = TimestampMs(0)  # noqa: RUF009  a NewType is its value


@dataclass(frozen=True)
class HalfShown:
    """A partition that is still being written: by item, the number of the partition that may show, and who writes."""

    partition: int
    pending: tuple[tuple[str, int, int], ...] = ()
    indexed: int = -1
    """The number of the earliest partition of which the index may still show something, -1 if it does not lag."""


class _Choice:
    """Shows the chosen items as they are, and the others as they were; of those in the index, the states picked."""

    def __init__(self) -> None:
        self.shown: frozenset[str] = frozenset()
        self.in_index: Mapping[str, int] = {}
        self.asked: set[str] = set()

    def pick(self, key: str, states: int) -> int:
        """Pick by the choice."""
        if states == 1:
            return 0
        plain = key.removeprefix(BY_TIME)
        if key.startswith(BY_TIME) and plain in self.in_index:
            return self.in_index[plain]
        self.asked.add(plain)
        return states - 1 if plain in self.shown else 0


class LogStore:
    """Numbers the states of a partition, and remembers what a request made of which."""

    def __init__(
        self, stream: StreamId, answers: Numbered, on_change: Callable[[int, int], None], *, index_lags: bool = False
    ) -> None:
        self._stream, self._answers, self._on_change = stream, answers, on_change
        self._index_lags = index_lags
        self._plain = MemoryTable()
        self._choice = _Choice()
        self._weak = MemoryTable(self._choice)
        self._earlier: dict[int, bytes] = {}
        self.partitions = Numbered()
        self._states = Numbered()
        self._known: dict[tuple[int, ...], tuple[Outcome, ...]] = {}
        self._settled: dict[tuple[int, int], int] = {}

    def begin(self, state: ManifestState, changes: int, earlier: Mapping[int, bytes]) -> int:
        """Return the number of the first state; `earlier` are the changes up to it, as the journal has them."""
        self._earlier = dict(earlier)
        first = self.partitions.number_as(("base",), LogState(state, changes))
        return self._number(first, indexed=first if self._index_lags else -1)

    def partition_of(self, number: int) -> int:
        """Return the number of the partition of a state: all that was written."""
        return self._states.values[number].partition  # type: ignore[attr-defined, no-any-return]

    def oldest_of(self, number: int) -> int:
        """Return the number of the earliest partition of which something may still show."""
        half: HalfShown = self._states.values[number]  # type: ignore[assignment]
        return min(
            [half.partition, *(before for _, before, _ in half.pending)], key=lambda one: self.partition(one).changes
        )

    def between(self, first: int, last: int) -> list[ManifestState]:
        """Return the partitions from one to a later one, the later first."""
        found = [self.partition(last).state]
        while last != first:
            last = self.partition(last).before
            found.append(self.partition(last).state)
        return found

    def partition(self, number: int) -> LogState:
        """Return the partition of a number."""
        return self.partitions.values[number]  # type: ignore[return-value]

    def is_half_shown(self, number: int) -> bool:
        """Tell whether others may still see an earlier state."""
        return bool(self._states.values[number].pending)  # type: ignore[attr-defined]

    def settled(self, number: int, writer: int) -> int:
        """Return the state once an actor goes on: all that it wrote shows. -1 stands for all actors."""
        found = self._settled.get((number, writer))
        if found is None:
            half: HalfShown = self._states.values[number]  # type: ignore[assignment]
            left = tuple(one for one in half.pending if writer not in {one[2], -1})
            # Time passes only if nobody writes: the index catches up.
            indexed = half.partition if self._index_lags and writer == -1 else half.indexed
            found = self._settled[number, writer] = self._number(half.partition, left, indexed)
        return found

    def carry_out(
        self, state: int, number: int, request: Request, now: TimestampMs, writer: int = -1
    ) -> tuple[Outcome, ...]:
        """Return what may come of a request. If a change has a `writer`, it shows to others bit by bit."""
        key = (state, number, writer, now) if request.writes else (state, number)
        found = self._known.get(key)
        if found is None:
            half: HalfShown = self._states.values[state]  # type: ignore[assignment]
            if request.method == "apply":
                outcomes = self._apply(half, state, request.args[0], now, writer)  # type: ignore[arg-type]
            else:
                outcomes = self._read(half, state, request)
            found = self._known[key] = tuple(dict.fromkeys(outcomes))
        return found

    def _number(self, partition: int, pending: Sequence[tuple[str, int, int]] = (), indexed: int = -1) -> int:
        half = HalfShown(partition, tuple(sorted(pending)), indexed)
        return self._states.number(half)

    def _apply(self, half: HalfShown, state: int, change: Change, now: TimestampMs, writer: int) -> Iterator[Outcome]:
        before = self.partition(half.partition)
        since = now if now - change.event.at <= MARGIN_MS else change.event.at
        number = self.partitions.known((half.partition, change, since))
        if number is None:
            try:
                after = before.state.after(change)
            except LostRaceError as err:
                yield state, self._answers.number(Refusal.of(err))
                return
            made = LogState(after, before.changes + 1, change, half.partition, since)
            number = self.partitions.number_as((half.partition, change, since), made)
            self._on_change(half.partition, number)
        done = self._answers.number(None)
        if writer < 0:
            yield self._number(number, indexed=half.indexed), done
            return
        items = items_of(before.state), items_of(self.partition(number).state)
        keys = set(changed(*items))
        clash = {key for key, _, _ in half.pending} & keys
        if clash:
            refused = LostRaceError(f"transaction conflict: {min(clash)} is being written")
            yield state, self._answers.number(Refusal.of(refused))
        left = [one for one in half.pending if one[0] not in keys]
        yield self._number(number, [*left, *((key, half.partition, writer) for key in keys)], half.indexed), done

    def _read(self, half: HalfShown, state: int, request: Request) -> Iterator[Outcome]:
        if half.indexed not in {-1, half.partition} and request.method == "log_from_timestamp":
            yield from self._read_index(half, state, request)
            return
        if not half.pending:
            yield state, self._answers.number(self._answer(self._plain, half.partition, request))
            return
        for shown in _choices([key for key, _, _ in half.pending]):
            self._show(half, shown)
            answer = self._answers.number(self._answer(self._weak, half.partition, request))
            seen = self._choice.asked & shown  # what was seen, everybody sees from now on
            left = [one for one in half.pending if one[0] not in seen]
            yield self._number(half.partition, left, half.indexed), answer

    def _read_index(self, half: HalfShown, state: int, request: Request) -> Iterator[Outcome]:
        """Read the index while it lags: what it shows says nothing of what the table shows, nor of its next answer."""
        index = states_in_index(list(reversed(self.between(half.indexed, half.partition))))
        for picked in picks({key: len(states) for key, states in index.items() if len(states) > 1}):
            self._show(half, frozenset())
            shown = self._weak._visible[self._stream.incarnation]
            shown._index = index
            self._choice.in_index = picked
            yield state, self._answers.number(self._answer(self._weak, half.partition, request))
            self._choice.in_index = {}

    def _show(self, half: HalfShown, shown: frozenset[str]) -> None:
        newest = items_of(self.partition(half.partition).state)
        partition = ShownPartition(self._choice, lambda: newest)
        earlier = {number: items_of(self.partition(number).state) for number in {one[1] for one in half.pending}}
        partition._before = {key: earlier[number].get(key) for key, number, _ in half.pending}
        partition._index = {key: in_index(partition._before.get(key), item) for key, item in newest.items()}
        self._weak._visible = {self._stream.incarnation: partition}
        self._choice.shown, self._choice.asked = shown, set()

    def _answer(self, double: MemoryTable, number: int, request: Request) -> Hashable:
        there = self.partition(number).state
        incarnation = self._stream.incarnation
        double._partitions = {incarnation: there}
        double._registry, double._newest = {}, {}
        if there.head is not None:
            names = self._stream.vhost, self._stream.name
            key = registry_key(*names, incarnation)
            double._registry, double._newest = {key: self._stream}, {names_key(*names): key}
        if request.method in {"recorded_changes", "recorded_page"}:
            double._recorded = {incarnation: self.recorded_until(number)}
        try:
            if request.method in PAGES:
                return PAGES[request.method](double, *request.args)
            answer: Any = getattr(double, request.method)(*request.args, **dict(request.options))
            return _plain(tuple(answer) if request.method in YIELDING else answer)
        except ColdstreamError as err:
            return Refusal.of(err)

    def recorded_until(self, number: int) -> dict[int, bytes]:
        """Return the changes up to a partition, as the journal has them."""
        found = dict(self._earlier)
        while (at := self.partition(number)).change is not None:
            found[at.change.event.revision] = recorded(at.change)
            number = at.before
        return found


def _choices(keys: Sequence[str]) -> Iterator[frozenset[str]]:
    if len(keys) <= ALL_SUBSETS:
        sizes = range(len(keys) + 1)
        yield from (frozenset(some) for size in sizes for some in combinations(keys, size))
        return
    for some in (keys, (), *((key,) for key in keys), *(tuple(set(keys) - {key}) for key in keys)):
        yield frozenset(some)


def _plain(answer: Any) -> Hashable:
    """Return an answer of which nothing can change."""
    return tuple(sorted(answer.items())) if isinstance(answer, dict) else answer  # type: ignore[no-any-return]
