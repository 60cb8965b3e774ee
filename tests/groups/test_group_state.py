from __future__ import annotations

import random

import pytest

from coldstream.errors import BadVersionError, CorruptionError, InvalidInputError, InvalidNameError
from coldstream.groups.group_state import MAX_SEATS, GroupSeat, GroupState

A, B, C = (GroupSeat(letter * 32, f"member-{letter}") for letter in "abc")


def group(*seats: GroupSeat, partitions: int = 4) -> GroupState:
    state = GroupState().with_partitions(range(partitions))
    for seat in seats:
        state = state.joined(seat)
    return state


def test_the_first_member_takes_everything_in_epoch_1() -> None:
    state = group(A).taken(A.session, range(4))
    assert state.epochs(A.session) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_second_member_takes_nothing_from_an_owner() -> None:
    state = group(A, B).taken(A.session, range(4)).taken(B.session, range(4)).taken(A.session, range(4))
    alone = group(A).taken(A.session, range(4)).joined(B)
    assert alone.taken(B.session, range(4)) == alone
    assert len(state.epochs(A.session)) == len(state.epochs(B.session)) == 2


def test_an_owner_gives_its_highest_partitions_back_until_it_has_its_share() -> None:
    state = group(A, partitions=5).taken(A.session, range(5)).joined(B)
    assert state.surplus(A.session, range(5), ()) == {3, 4}
    assert state.surplus(A.session, range(5), {4}) == {3, 4}
    given = state.released(A.session, {3, 4}).taken(B.session, range(5))
    assert given.epochs(B.session) == {3: 2, 4: 2}
    assert given.surplus(A.session, range(5), ()) == frozenset()


def test_the_greater_share_is_of_whoever_has_more() -> None:
    state = group(A, partitions=3).taken(A.session, range(3)).joined(B)
    assert (state.share(A.session, range(3)), state.share(B.session, range(3))) == (2, 1)


def test_partitions_of_a_dead_member_are_free_and_keep_their_epoch() -> None:
    state = group(A, B).taken(A.session, range(4)).taken(B.session, range(4)).without(A.session)
    assert state.epochs(B.session) == {2: 1, 3: 1}
    assert state.taken(B.session, range(4)).epochs(B.session) == {0: 2, 1: 2, 2: 1, 3: 1}


def test_growth_adds_partitions_and_balances_them() -> None:
    state = group(A, B).taken(A.session, range(4)).taken(B.session, range(4)).with_partitions(range(8))
    state = state.taken(B.session, range(8)).taken(A.session, range(8))
    assert len(state.epochs(A.session)) == len(state.epochs(B.session)) == 4


def test_a_member_gives_back_what_it_does_not_use_and_takes_none_of_it() -> None:
    state = group(A).taken(A.session, range(4))
    assert state.surplus(A.session, (0, 1), ()) == {2, 3}
    freed = state.released(A.session, {2, 3})
    assert freed.taken(A.session, (0, 1)) == freed


def test_any_sequence_of_decisions_ends_balanced() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        seats = [GroupSeat(f"{number:032x}", f"member-{number}") for number in range(rng.randint(1, 7))]
        state = group(*seats, partitions=rng.randint(1, 20))
        numbers = [one.number for one in state.partitions]
        for _ in range(12 * len(seats)):
            session = rng.choice(seats).session
            state = state.released(session, state.surplus(session, numbers, ())).taken(session, numbers)
        for seat in seats * 2:
            state = state.released(seat.session, state.surplus(seat.session, numbers, ()))
            state = state.taken(seat.session, numbers)
        for seat in seats:
            state = state.taken(seat.session, numbers)
        loads = sorted(len(state.epochs(seat.session)) for seat in seats)
        assert loads[-1] - loads[0] <= 1, seed
        assert sum(loads) == len(numbers)


def test_the_bytes_give_the_state_back() -> None:
    seat = GroupSeat("d" * 32, 'mémbre "\\ \n')
    state = group(A, seat).taken(A.session, range(3)).taken(seat.session, range(4))
    assert GroupState.from_bytes(state.to_bytes(), source="group") == state


def test_a_later_version_is_refused() -> None:
    with pytest.raises(BadVersionError):
        GroupState.from_bytes(group(A).to_bytes().replace(b'"version":1', b'"version":2'), source="group")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"version":1,"seats":[],"partitions":[[0,1,0]]}',
        b'{"version":1,"seats":[],"partitions":[[0,-1,null]]}',
        b'{"version":1,"seats":[["x","m"]],"partitions":[]}',
        b'{"version":1,"seats":[],"partitions":[[0,1,null],[0,2,null]]}',
        b'{"version":1,"seats":[["' + b"a" * 32 + b'","m"]],"partitions":[[0,1,-1]]}',
    ],
)
def test_malformed_bytes_are_corruption(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        GroupState.from_bytes(data, source="group")


def test_every_truncation_is_corruption() -> None:
    data = group(A, B).taken(A.session, range(4)).to_bytes()
    for end in range(len(data)):
        with pytest.raises(CorruptionError):
            GroupState.from_bytes(data[:end], source="group")


def test_a_member_has_one_seat() -> None:
    with pytest.raises(InvalidInputError):
        group(A).joined(GroupSeat("e" * 32, A.member))


def test_a_group_takes_so_many_members_and_fits_an_item() -> None:
    state = GroupState().with_partitions(range(4096))
    for number in range(MAX_SEATS):
        state = state.joined(GroupSeat(f"{number:032x}", f"{number:03}" + "m" * 252))
    state = state.taken(f"{0:032x}", range(4096))
    assert len(state.to_bytes()) < 300_000
    with pytest.raises(InvalidInputError, match="takes no more"):
        state.joined(A)


@pytest.mark.parametrize("name", ["", "m" * 256, "\ud800"])
def test_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        GroupSeat("a" * 32, name)
