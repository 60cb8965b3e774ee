"""The explorer itself: reduced it finds what it finds in full, its texts play again, and it is deterministic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coldstream.errors import UnavailableError
from tests.explore.actors import world
from tests.explore.explorer import Explorer
from tests.explore.machine import LOG, NODES, Machine, State, Violation
from tests.explore.patches import reproducible
from tests.explore.playing import follow
from tests.explore.runs import GivenUp, Role, Run, Stuck
from tests.explore.schedules import Fate, Move, moves_of, text_of
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
    found = set()
    for state in ends:
        partition = machine.log.partition(machine.log.partition_of(state[LOG])).state
        bucket = machine.bucket.state(state[2])
        said = tuple(str(machine.end(node)) for node in state[NODES:])
        found.add((repr(sorted(partition.events.items())), repr(sorted(bucket.objects.items())), said, state[4:6]))
    return found


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


@pytest.mark.parametrize(("names", "faults"), SMALL)
def test_a_reduced_search_finds_the_same_violations(names: str, faults: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[set[str]] = []
    for is_reduced in (False, True):
        machine, explorer = searched(world(names.split("+"), faults=faults), sleeping=is_reduced, private=is_reduced)
        watch, seen = machine.watch, set[str]()

        class Forbidding:
            """Takes down each partition, as if it was a violation, and each deletion."""

            def changed(self, before: int, after: int) -> None:
                seen.add(repr(machine.log.partition(after).change))

            def deleted(self, keys, partition, bucket, told, now) -> None:
                seen.add(repr((keys, repr(machine.log.partition(partition).state.head))))

            def look(self, partition: int, bucket: int, told: int) -> int:
                names = sorted(machine.bucket.state(bucket).objects)
                seen.add(repr((names, repr(machine.log.partition(partition).state.head))))
                return watch.look(partition, bucket, told)

            def ended(self, state: State) -> None:
                seen.add("end")

        machine.watch = Forbidding()
        explorer.search()
        told.append(seen)
        machine.programs.close()
    assert told[0] == told[1]


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
    assert text_of(moves) == "a2b!bc?a%12a"
    assert list(moves_of(text_of(moves))) == moves


def test_faults_are_read_back() -> None:
    for faults in (Faults(), Faults(2, 1, 0), Faults(1, 0, 3, by_halves=True)):
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
        ends = [moves for moves in schedules(machine, machine.start, ())]
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
    first = Run(role, 1000, ())
    asked = first.first()
    first.give_up()
    next(times)
    with pytest.raises(Stuck, match="fickle asks"):
        Run(role, 1000, [(asked, None)]).first()


def test_a_run_that_is_given_up_ends_even_if_it_catches_all_errors() -> None:
    ended = []

    def work(site) -> None:
        try:
            site.table.head("x")
        except Exception:  # noqa: BLE001  that is the test
            ended.append("caught")
        finally:
            ended.append("over")

    run = Run(Role("stubborn", work, (), (UnavailableError,)), 1000, ())
    run.first()
    run.give_up()
    assert ended == ["over"]
    assert not issubclass(GivenUp, Exception)


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="no step at '3'"):
        list(moves_of("3"))
