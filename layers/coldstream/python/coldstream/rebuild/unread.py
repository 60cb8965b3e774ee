"""What an object that cannot be read may have erased: older objects of its offsets are left out. Pure.

An erased object replaces the one before it, which stays until a sweep has taken it. If the erased one is damaged, or
has to be restored first, nothing says that it is erased, and the one before it would be chosen. But its key tells its
first offset and its generation. So an object of a lower generation that holds that offset is left out, if an erasure
is about any of its own offsets, and so is what overlaps that in turn: the offset at which the unreadable one ends is
not known. It stays in the bucket, and is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from coldstream.rebuild.entries import Unreadable
from coldstream.rebuild.fragment import FoundFragment
from coldstream.units import Offset

Span = tuple[Offset, Offset]
"""A first offset, and the one after the last."""


def without_older(
    found: Iterable[FoundFragment | Unreadable],
    erasures: Sequence[Span],
    *,
    leave_out: Callable[[FoundFragment, Unreadable], None],
) -> Iterator[FoundFragment]:
    """Pass on objects in the order of their first offsets; call `leave_out` with one that the other may have erased.

    `erasures` are the offsets of all erasures. Memory: a run of objects that overlap.
    """
    for run in _runs(found):
        unread = [one for one in run if isinstance(one, Unreadable)]
        readable = [one for one in run if isinstance(one, FoundFragment)]
        left = _replaced(readable, unread, erasures) if erasures else {}
        for one in readable:
            if one.entry.key in left:
                leave_out(one, left[one.entry.key])
            else:
                yield one


def _runs(found: Iterable[FoundFragment | Unreadable]) -> Iterator[list[FoundFragment | Unreadable]]:
    run: list[FoundFragment | Unreadable] = []
    reached = 0
    for one in found:
        if isinstance(one, Unreadable):
            if one.first_offset is None:
                continue
            first_offset, next_offset = one.first_offset, one.first_offset + 1  # one offset is all that is known
        else:
            first_offset, next_offset = one.entry.first_offset, one.entry.next_offset
        if run and first_offset >= reached:
            yield run
            run = []
        run.append(one)
        reached = max(reached, next_offset)
    if run:
        yield run


def _replaced(
    readable: Iterable[FoundFragment], unread: Sequence[Unreadable], erasures: Sequence[Span]
) -> dict[str, Unreadable]:
    """Return what is left out, by key, with the unreadable object that each is left out for."""
    left: dict[str, Unreadable] = {}
    if not unread:
        return left
    # Whatever was replaced reached no further than what replaced it: each that is left out extends its reach.
    reach = [(one.first_offset or 0) + 1 for one in unread]
    for found in sorted(readable, key=lambda found: found.entry.first_offset):
        entry = found.entry
        if not any(first < entry.next_offset and entry.first_offset < following for first, following in erasures):
            continue
        for number, one in enumerate(unread):
            begins, is_older = one.first_offset or 0, entry.generation < one.generation
            if is_older and entry.first_offset < reach[number] and begins < entry.next_offset:
                left.setdefault(entry.key, one)
                reach[number] = max(reach[number], entry.next_offset)
    return left
