"""The explorer itself: reduced it finds what it finds in full, its texts play again, and it is deterministic."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from coldstream.errors import UnavailableError
from tests.explore.actors import world
from tests.explore.explorer import Explorer
from tests.explore.machine import BUCKET, LOG, NODES, NOW, Machine, State, Violation
from tests.explore.patches import reproducible
from tests.explore.playing import follow
from tests.explore.runs import GivenUp, Role, Run, Stuck
from tests.explore.schedules import Fate, Move, moves_of, text_of
from tests.explore.site import Surroundings
from tests.explore.watching import Invariants
from tests.explore.world import Faults, World


@pytest.fixture(autouse=True)
def patch() -> Iterator[pytest.MonkeyPatch]:
    with reproducible() as patch:
        yield patch


def searched(small: World, *, sleeping: bool, private: bool) -> tuple[Machine, Explorer]:
    machine = Machine(small)
    Invariants(machine)
    return machine, Explorer(machine, sleeping=sleeping, private=private)


def essence(machine: Machine, ends: set[State]) -> set[object]:
    """Return the ends as values: numbers are those of one machine."""

    @cache
    def log(number: int) -> str:
        return repr(sorted(machine.log.partition(machine.log.partition_of(number)).state.events.items()))

    @cache
    def bucket(number: int) -> str:
        return repr(sorted(machine.bucket.state(number).objects.items()))

    return {
        (log(one[LOG]), bucket(one[BUCKET]), tuple(str(machine.end(node)) for node in one[NODES:]), one[NOW:NODES])
        for one in ends
    }


SMALL = ("upload+delete", "1c0l0r"), ("slice+other", "0c0l0r"), ("hold+cut", "1c1l0r"), ("lose+slice+cut", "0c0l0r")


@pytest.mark.parametrize(("names", "faults"), [*SMALL, ("delete+undelete", "0c0l1rh")])
def test_a_reduced_search_ends_in_the_same_states(names: str, faults: str) -> None:
    small = world(names.split("+"), faults=faults)
    machine, explorer = searched(small, sleeping=False, private=False)
    full = explorer.search()
    for sleeping, private in ((True, False), (False, True), (True, True)):
        other, explorer = searched(small, sleeping=sleeping, private=private)
        reduced = explorer.search()
        assert essence(other, reduced.ends) == essence(machine, full.ends)
        assert reduced.states <= full.states
        assert reduced.moves <= full.moves
        other.programs.close()
    assert reduced.moves < full.moves
    machine.programs.close()


class Recording:
    """Takes down whatever an invariant may depend on, as if all of it was a violation."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.watch = machine, machine.watch
        self.seen: set[str] = set()
        machine.watch = self

    def changed(self, before: int, after: int) -> None:
        self.seen.add(repr(self.machine.log.partition(after).change))

    def deleted(self, keys: tuple[str, ...], partition: int, bucket: int, told: int, now: int) -> None:
        self.seen.add(repr((keys, repr(self.machine.log.partition(partition).state.head))))

    def look(self, partition: int, bucket: int, told: int) -> int:
        names = sorted(self.machine.bucket.state(bucket).objects)
        self.seen.add(repr((names, repr(self.machine.log.partition(partition).state.head))))
        return self.watch.look(partition, bucket, told)

    def found(self, what: str, found: object, begun: tuple[int, int], now: tuple[int, int]) -> None:
        self.seen.add(repr(found))

    def ended(self, state: State) -> None:
        """Ends are compared elsewhere."""


@pytest.mark.parametrize(("names", "faults"), SMALL)
def test_a_reduced_search_holds_the_same_against_the_invariants(names: str, faults: str) -> None:
    seen = []
    for is_reduced in (False, True):
        machine, explorer = searched(world(names.split("+"), faults=faults), sleeping=is_reduced, private=is_reduced)
        recording = Recording(machine)
        explorer.search()
        seen.append(recording.seen)
        machine.programs.close()
    assert seen[0] == seen[1]


def test_a_broken_invariant_is_found_and_its_text_plays_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("coldstream.manifest.commit.check_floors", lambda *_: None)
    names = ["slice", "delete"]
    machine, explorer = searched(world(names), sleeping=True, private=True)
    with pytest.raises(Violation, match="archived, though the stream is deleted") as found:
        explorer.search()
    text = text_of(found.value.moves)
    machine.programs.close()
    again, _ = searched(world(names), sleeping=True, private=True)
    with pytest.raises(Violation, match="archived, though the stream is deleted"):
        follow(again, moves_of(text), tell=False)
    again.programs.close()


def test_texts_of_schedules_can_be_read_back() -> None:
    moves = [Move(0), Move(0), Move(1, Fate.DIES), Move(1), Move(2, Fate.HEARS_NOTHING), Move(0, outcome=12), Move(0)]
    moves += [Move(1, Fate.DOES_A_PART, 2), Move(1, Fate.DIES, 1), Move(0, Fate.CLOCK_STEPPED)]
    assert text_of(moves) == "a2b!bc?a%12ab^%2b!%1a@"
    assert list(moves_of(text_of(moves))) == moves


def test_faults_are_read_back() -> None:
    for faults in (
        Faults(),
        Faults(2, 1, 0),
        Faults(1, 0, 3, by_halves=True),
        Faults(1, 0, 0, 2, 1, index_lags=True, by_pages=True),
    ):
        assert Faults.parse(str(faults)) == faults


def test_each_crash_and_each_pair_of_crashes_is_tried() -> None:
    """An actor of three writes dies after each of them, and, started again, after each later one.

    To die after a write that changes nothing is to have died before it.
    """

    def work(site) -> None:
        for name in "abc":
            site.objects.put(name, name.encode())

    for crashes, ways in ((0, 1), (1, 4), (2, 7)):
        small = world(["delete"], faults=Faults(crashes=crashes))
        machine = Machine(World(**{**vars(small), "roles": [Role("writer", work, (), ())]}))
        ends = list(schedules(machine, machine.start, ()))
        assert len(ends) == ways
        machine.programs.close()


def schedules(machine: Machine, state: State, moves: tuple[Move, ...]):
    """Yield each schedule to an end, without hashing of states."""
    if machine.is_over(state):
        yield moves
        return
    for actor in range(len(machine.world.roles)):
        for move, after in list(machine.moves(state, actor)):
            yield from schedules(machine, after, (*moves, move))


def test_an_actor_that_does_another_thing_after_the_same_answers_is_named() -> None:
    times = iter(range(10))

    def work(site) -> None:
        site.table.head(f"{next(times) // 2}")
        site.table.head("x")

    role = Role("fickle", work, (), ())
    first = Run(role, Surroundings())
    asked = first.first()
    first.give_up()
    next(times)
    with pytest.raises(Stuck, match="fickle asks"):
        Run(role, Surroundings(), [(asked, None)]).first()


def test_which_of_several_merged_fragments_is_committed_first_is_no_chance() -> None:
    """`concurrent.futures.wait` gives a set: the explorer found that out when two groups were merged at once."""
    machine, explorer = searched(world(["other", "compact"]), sleeping=True, private=True)
    assert explorer.search().is_whole
    machine.programs.close()


def test_a_run_that_is_given_up_ends_even_if_it_catches_all_errors() -> None:
    ended = []

    def work(site) -> None:
        try:
            site.table.head("x")
        except Exception:  # noqa: BLE001  that is the test
            ended.append("caught")
        finally:
            ended.append("over")

    run = Run(Role("stubborn", work, (), (UnavailableError,)), Surroundings())
    run.first()
    run.give_up()
    assert ended == ["over"]
    assert not issubclass(GivenUp, Exception)


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="no step at '3'"):
        list(moves_of("3"))
