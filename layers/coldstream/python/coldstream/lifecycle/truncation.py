"""Truncation: the beginning of a stream goes at once, up to an offset or a time, because somebody says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coldstream.lifecycle.expiry import ended_before, ended_by, removable
from coldstream.lifecycle.prefix import PrefixChoice, PrefixRemoval, remove_prefix
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs


def up_to_offset(offset: Offset) -> PrefixChoice:
    """Choose the fragments all of whose offsets lie below `offset`, but for the last if it tells publishers."""

    def choose(head: Head, log: Iterator[FragmentEntry]) -> Iterator[FragmentEntry]:
        return ended_by(removable(head, log), offset)

    return choose


def up_to_time(time: TimestampMs) -> PrefixChoice:
    """Choose the fragments at the beginning all of whose chunks are older than `time`; the last as above."""

    def choose(head: Head, log: Iterator[FragmentEntry]) -> Iterator[FragmentEntry]:
        return ended_before(removable(head, log), time)

    return choose


def truncate(
    stores: LifecycleStores,
    incarnation: Incarnation,
    choice: PrefixChoice,
    *,
    why: str,
    by: str,
    should_stop: Callable[[], bool] = lambda: False,
    on_removed: Callable[[int], None] = lambda _: None,
) -> PrefixRemoval:
    """Remove the first fragments, whole ones only; cost and errors are those of `remove_prefix`.

    Raises StreamDeletedError for a deleted stream, which may still be undeleted as it was.
    """
    return remove_prefix(stores, incarnation, choice, why=why, by=by, should_stop=should_stop, on_removed=on_removed)
