"""Who has which partition: the one item of a group, and every decision on it. Pure.

A member takes part by a *session*, one stay in the group from joining to leaving or being removed. So a member that was
removed and comes back is nobody that anything was promised to. A partition has at most one owner, a session, and an
*epoch*, which is one more with each owner. No decision takes a partition from a session that has a seat.

The bytes are JSON: `{"version": 1, "seats": [[session, member], …], "partitions": [[number, epoch, seat or null], …]}`,
where a seat is its place in `seats`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from coldstream.errors import BadVersionError, CorruptionError, InvalidInputError
from coldstream.manifest.shard_map import MAX_PARTITIONS
from coldstream.manifest.stream import check_name
from coldstream.plain_json import read_json

VERSION = 1

MAX_SEATS = 500
"""Members of one group: with names of 255 bytes and 4,096 partitions the item stays below 300 KB."""

_SESSION = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, order=True)
class GroupSeat:
    """A session's place in the group, and the member whose session it is: no two seats are of one member."""

    session: str
    member: str

    def __post_init__(self) -> None:
        if not _SESSION.fullmatch(self.session):
            raise InvalidInputError("session", f"{self.session[:80]!r} is not 32 hexadecimal digits")
        check_name("member", self.member)


@dataclass(frozen=True, slots=True, order=True)
class PartitionTenure:
    """A partition by its number, its owner's session, None if it is free, and how many owners it has had."""

    number: int
    epoch: int = 0
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """The seats by session, and the partitions by number."""

    seats: tuple[GroupSeat, ...] = ()
    partitions: tuple[PartitionTenure, ...] = ()

    def __post_init__(self) -> None:
        sessions = {seat.session for seat in self.seats}
        if len(sessions) != len(self.seats) or len({seat.member for seat in self.seats}) != len(self.seats):
            raise InvalidInputError("seats", "a session or a member is there twice")
        if len(self.seats) > MAX_SEATS:
            raise InvalidInputError("group", f"has {MAX_SEATS} members, and takes no more")
        if len({one.number for one in self.partitions}) != len(self.partitions):
            raise InvalidInputError("partitions", "a partition is there twice")
        if len(self.partitions) > 4 * MAX_PARTITIONS:
            raise InvalidInputError("partitions", f"{len(self.partitions)}, of {4 * MAX_PARTITIONS} at most")
        if any(one.owner is not None and one.owner not in sessions for one in self.partitions):
            raise InvalidInputError("partitions", "an owner has no seat")

    def seat_of(self, member: str) -> GroupSeat | None:
        """Return a member's seat, None if it has none."""
        return next((seat for seat in self.seats if seat.member == member), None)

    def has(self, session: str) -> bool:
        """Tell whether a session has a seat."""
        return any(seat.session == session for seat in self.seats)

    def epochs(self, session: str) -> dict[int, int]:
        """Return the partitions that a session owns, each with its epoch, by number."""
        return {one.number: one.epoch for one in self.partitions if one.owner == session}

    def joined(self, seat: GroupSeat) -> GroupState:
        """Give a new session its seat. The member must have none. Raises InvalidInputError if the group is full."""
        return replace(self, seats=tuple(sorted((*self.seats, seat))))

    def without(self, session: str) -> GroupState:
        """Remove a session that left, or is known to be dead, and free its partitions."""
        freed = self.released(session, self.epochs(session))
        return replace(freed, seats=tuple(seat for seat in self.seats if seat.session != session))

    def released(self, session: str, numbers: Collection[int]) -> GroupState:
        """Free some partitions of the session that has them; others' stay theirs."""
        return self._with(replace(one, owner=None) for one in self._of(numbers) if one.owner == session)

    def with_partitions(self, numbers: Iterable[int]) -> GroupState:
        """Add the partitions that are not there yet: nobody's, and never owned.

        None is ever removed: members may see two revisions of the map, and numbers in it are for good.
        """
        known = {one.number for one in self.partitions}
        return self._with(PartitionTenure(number) for number in set(numbers) - known)

    def share(self, session: str, numbers: Collection[int]) -> int:
        """Return how many of the partitions `numbers` are a session's share.

        Shares differ by one at most. Who has more already has the greater one, so that nothing moves without need.
        """
        loads = {seat.session: 0 for seat in self.seats}
        for one in self._of(numbers):
            if one.owner is not None:
                loads[one.owner] += 1
        least, more = divmod(len(set(numbers)), len(loads))
        first = sorted(loads, key=lambda other: (-loads[other], other))[:more]
        return least + (session in first)

    def taken(self, session: str, numbers: Collection[int]) -> GroupState:
        """Give a session free partitions of `numbers`, up to its share: the lowest ones. Each gets its next epoch."""
        free = sorted(one for one in self._of(numbers) if one.owner is None)
        room = max(0, self.share(session, numbers) - len(self._owned(session, numbers)))
        return self._with(replace(one, owner=session, epoch=one.epoch + 1) for one in free[:room])

    def surplus(self, session: str, numbers: Collection[int], leaving: Collection[int]) -> frozenset[int]:
        """Return what a session should give back: all that is not in `numbers`, and the highest ones above its share.

        What is `leaving` already counts, and stays among them.
        """
        staying = sorted(set(self._owned(session, numbers)) - set(leaving))
        owned = self.epochs(session).keys()
        return frozenset((owned & set(leaving)) | (owned - set(numbers)) | set(staying[self.share(session, numbers) :]))

    def to_bytes(self) -> bytes:
        """Encode the state."""
        places = {seat.session: place for place, seat in enumerate(self.seats)}
        content = {
            "version": VERSION,
            "seats": [[seat.session, seat.member] for seat in self.seats],
            "partitions": [
                [one.number, one.epoch, None if one.owner is None else places[one.owner]] for one in self.partitions
            ],
        }
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> GroupState:
        """Decode a state. Raises CorruptionError; BadVersionError if a later release wrote it."""
        try:
            content = read_json(data)
            if content["version"] != VERSION:
                raise BadVersionError(source, 0, "version of a group", expected=VERSION, found=content["version"])
            seats = tuple(GroupSeat(session, member) for session, member in content["seats"])
            return cls(
                seats,
                tuple(
                    PartitionTenure(
                        _natural(number), _natural(epoch), None if at is None else seats[_natural(at)].session
                    )
                    for number, epoch, at in content["partitions"]
                ),
            )
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, InvalidInputError) as err:
            raise CorruptionError(source, 0, f"malformed state of a group: {err}") from err

    def _of(self, numbers: Collection[int]) -> Iterable[PartitionTenure]:
        wanted = set(numbers)
        return (one for one in self.partitions if one.number in wanted)

    def _owned(self, session: str, numbers: Collection[int]) -> list[int]:
        return [one.number for one in self._of(numbers) if one.owner == session]

    def _with(self, changed: Iterable[PartitionTenure]) -> GroupState:
        held = {one.number: one for one in self.partitions} | {one.number: one for one in changed}
        return replace(self, partitions=tuple(sorted(held.values(), key=lambda one: one.number)))


def _natural(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{number!r} is no natural number")
    return number
