"""Retention: what a policy lets go is removed from each stream, and what it wants colder is moved.

A stream without a policy is kept for ever, and so is one whose policy sets no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coldstream.errors import ColdstreamError
from coldstream.lifecycle.classes import ClassMoves, foretell_moves, move_to_class
from coldstream.lifecycle.expiry import expired, removable
from coldstream.lifecycle.prefix import PrefixRemoval, foretell_removal, remove_prefix
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.policy import Policy, match
from coldstream.manifest.stream import StreamId
from coldstream.units import TimestampMs

BY = "retention"
"""Who removes, for the journal; the policy's name is the reason."""


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What retention did to a stream, or would do if `is_dry_run`. `policy` is the name of the one that applies.

    `error` says why the stream was given up for this run.
    """

    stream: StreamId
    policy: str | None
    is_dry_run: bool
    removal: PrefixRemoval = field(default_factory=PrefixRemoval)
    moves: ClassMoves = field(default_factory=ClassMoves)
    error: ColdstreamError | None = None

    @property
    def saved_usd_a_month(self) -> float:
        """What storage costs less each month, once the objects are deleted."""
        return self.removal.saved_usd_a_month + self.moves.saved_usd_a_month

    @property
    def is_stopped(self) -> bool:
        """Whether there was no time for all of it."""
        return self.removal.is_stopped or self.moves.is_stopped


def run_retention(
    stores: LifecycleStores,
    streams: Iterable[StreamId],
    *,
    dry_run: bool,
    should_stop: Callable[[], bool] = lambda: False,
    on_stream: Callable[[int], None] = lambda _: None,
) -> Iterator[RetentionReport]:
    """Apply the policies to streams, one after the other, and yield a report of each that is not deleted.

    What fails in one stream is in its report, and ends only that one. Nothing is begun once `should_stop`; the next run
    goes on where this one ended. `on_stream` is called with 1 after each stream.

    Cost: a GetItem a stream, and what `remove_prefix` and `move_to_class` cost where a policy applies.
    """
    policies = stores.table.policies()
    for stream in streams:
        if should_stop():
            return
        report = _apply(stores, match(policies, stream), stream, dry_run=dry_run, should_stop=should_stop)
        on_stream(1)
        if report is not None:
            yield report


def _apply(
    stores: LifecycleStores,
    policy: Policy | None,
    stream: StreamId,
    *,
    dry_run: bool,
    should_stop: Callable[[], bool],
) -> RetentionReport | None:
    removal, moves = PrefixRemoval(), ClassMoves()
    try:
        head = stores.table.head(stream.incarnation)
        if head is None or head.is_deleted:
            return None
        removal = PrefixRemoval(first_offset=head.first_offset)
        if policy is None:
            return RetentionReport(stream, None, dry_run, removal)
        now = stores.now()
        if policy.max_age_ms is not None or policy.max_bytes is not None:
            choice = partial(_expired, policy, now)
            if dry_run:
                removal = foretell_removal(stores.table, stream.incarnation, choice)
            else:
                removal = remove_prefix(
                    stores,
                    stream.incarnation,
                    choice,
                    why=f"policy {policy.name}",
                    by=BY,
                    should_stop=should_stop,
                )
        if policy.storage_class is not None and policy.storage_class_age_ms is not None:
            before = TimestampMs(now - policy.storage_class_age_ms)
            if dry_run:
                moves = foretell_moves(stores.table, stream.incarnation, policy.storage_class, before, removal)
            else:
                moves = move_to_class(stores, stream.incarnation, policy.storage_class, before, should_stop=should_stop)
    except ColdstreamError as err:
        return RetentionReport(stream, None if policy is None else policy.name, dry_run, removal, moves, err)
    return RetentionReport(stream, policy.name, dry_run, removal, moves)


def _expired(policy: Policy, now: TimestampMs, head: Head, log: Iterator[FragmentEntry]) -> Iterator[FragmentEntry]:
    return expired(policy, head, removable(head, log), now)


def summary_of(reports: Sequence[RetentionReport]) -> dict[str, Any]:
    """Return reports for JSON: the totals, and each stream."""
    return {
        "dry_run": any(report.is_dry_run for report in reports),
        "objects": sum(report.removal.fragments for report in reports),
        "object_bytes": sum(report.removal.object_bytes for report in reports),
        "moved_objects": sum(report.moves.objects for report in reports),
        "saved_usd_a_month": round(sum(report.saved_usd_a_month for report in reports), 6),
        "streams": [_to_json(report) for report in reports],
    }


def _to_json(report: RetentionReport) -> dict[str, Any]:
    return {
        "vhost": report.stream.vhost,
        "name": report.stream.name,
        "incarnation": report.stream.incarnation,
        "policy": report.policy,
        **report.removal.to_json(),
        "is_stopped": report.is_stopped,
        "storage_class": report.moves.storage_class,
        "moved_objects": report.moves.objects,
        "moved_bytes": report.moves.object_bytes,
        "moving_cost_usd": round(report.moves.cost_usd, 6),
        "error": None if report.error is None else f"{type(report.error).__name__}: {report.error}",
    }
