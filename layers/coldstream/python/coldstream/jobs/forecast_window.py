"""Which offsets of a stream a job deals with, if it begins now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coldstream.jobs.preview_warning import PreviewWarning, WarningCode
from coldstream.jobs.specs import CompactSpec, EraseSpec, ExportSpec, JobSpec, LoadSpec, RetentionSpec
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.policy import Policy, match
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, parse_offset_spec
from coldstream.store.ports import ManifestReads
from coldstream.units import MAX_OFFSET, Offset, TimestampMs, format_timestamp, parse_duration


@dataclass(frozen=True, slots=True)
class JobWindow:
    """The offsets `first_offset` up to `next_offset`; `is_estimate` if a bound is a time within a fragment."""

    first_offset: Offset
    next_offset: Offset
    is_estimate: bool = False
    warnings: tuple[PreviewWarning, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class _Bound:
    offset: Offset
    is_estimate: bool = False


def window_of(
    table: ManifestReads, spec: JobSpec, head: Head, now: TimestampMs, policies: Sequence[Policy]
) -> JobWindow | None:
    """Return a job's window in a stream, None if it is empty. Cost: up to two Queries for each bound that is a time."""
    if head.first_offset is None or head.next_offset is None:
        return None
    match spec:
        case LoadSpec() | ExportSpec():
            start, end = _bound(table, head, spec.start, now), None
            if spec.end is not None:
                end = _bound(table, head, spec.end, now)
            found = _within(head, start, end)
            return _with_end_told(found, spec, head, now)
        case EraseSpec():
            first, _, after = (spec.offsets or ":").partition(":")
            return _within(head, _Bound(Offset(int(first or 0))), _Bound(Offset(int(after or MAX_OFFSET))))
        case CompactSpec():
            until = TimestampMs(now - round(parse_duration(spec.older_than) * 1000))
            return _within(head, _Bound(head.first_offset), _at_time(table, head, until))
        case RetentionSpec():
            return _let_go(table, head, now, match(policies, head.stream))
        case _:
            return _within(head, _Bound(head.first_offset), None)


def _within(head: Head, start: _Bound, end: _Bound | None) -> JobWindow | None:
    assert head.first_offset is not None
    assert head.next_offset is not None
    first = max(start.offset, head.first_offset)
    after = head.next_offset if end is None else min(end.offset, head.next_offset)
    if first >= after:
        return None
    return JobWindow(first, Offset(after), start.is_estimate or (end is not None and end.is_estimate))


def _bound(table: ManifestReads, head: Head, text: str, now: TimestampMs) -> _Bound:
    match parse_offset_spec(text, now):
        case AtOffset(offset):
            return _Bound(offset)
        case AtTimestamp(timestamp):
            return _at_time(table, head, timestamp)
        case AtEnd("first"):
            return _Bound(Offset(0))
        case AtEnd("next"):
            return _Bound(head.next_offset or Offset(0))
        case AtEnd():
            return _last(table, head)


def _last(table: ManifestReads, head: Head) -> _Bound:
    """Return where the last user chunk begins, if the last fragment has one."""
    entries = table.log_end(head.stream.incarnation, 1).entries
    last = entries[-1].last_user_chunk if entries else None
    return _Bound(Offset(last.chunk_id) if last is not None else head.next_offset or Offset(0))


def _at_time(table: ManifestReads, head: Head, moment: TimestampMs) -> _Bound:
    """Return about the first offset at or after a time. Cost: a Query, and one more if that shows nothing."""
    if head.first_timestamp is not None and moment <= head.first_timestamp:
        return _Bound(head.first_offset or Offset(0))
    if head.greatest_timestamp is not None and moment > head.greatest_timestamp:
        return _Bound(head.next_offset or Offset(0))
    # The index by time lags behind the table: what it does not show yet is at the end of the log.
    shown = table.log_from_timestamp(head.stream.incarnation, moment, 1).entries
    entries = shown or table.log_end(head.stream.incarnation, 1).entries
    return _Bound(head.next_offset or Offset(0)) if not entries else _inside(entries[0], moment)


def _inside(entry: FragmentEntry, moment: TimestampMs) -> _Bound:
    """Return where in a fragment a time is, by its sparse index and evenly between two points of it."""
    if moment <= entry.first_timestamp:
        return _Bound(entry.first_offset)
    span = max(1, entry.greatest_timestamp - entry.first_timestamp)
    share = min(1.0, (moment - entry.first_timestamp) / span)
    return _Bound(Offset(entry.first_offset + round(share * entry.records)), is_estimate=True)


def _with_end_told(
    window: JobWindow | None, spec: LoadSpec | ExportSpec, head: Head, now: TimestampMs
) -> JobWindow | None:
    """Add a warning if the window's end is past what is archived: that may come while the job runs, or later."""
    if window is None or spec.end is None:
        return window
    match parse_offset_spec(spec.end, now):
        case AtOffset(offset) if offset > (head.next_offset or 0):
            told = f"offset {offset}"
        case AtTimestamp(timestamp) if timestamp > (head.greatest_timestamp or timestamp):
            told = format_timestamp(timestamp)
        case _:
            return window
    text = f"its end, {told}, is past what is archived, which ends at offset {head.next_offset}"
    warning = PreviewWarning(WarningCode.NOT_ARCHIVED_YET, text)
    return JobWindow(window.first_offset, window.next_offset, window.is_estimate, (*window.warnings, warning))


def _let_go(table: ManifestReads, head: Head, now: TimestampMs, policy: Policy | None) -> JobWindow | None:
    """Return about what a policy lets go, without what its least amounts keep."""
    assert head.first_offset is not None
    assert head.next_offset is not None
    if policy is None:
        return None
    after = head.first_offset
    if policy.max_age_ms is not None:
        after = max(after, _at_time(table, head, TimestampMs(now - policy.max_age_ms)).offset)
    if policy.max_bytes is not None and head.object_bytes > policy.max_bytes:
        share = 1 - policy.max_bytes / head.object_bytes
        after = max(after, Offset(head.first_offset + round((head.next_offset - head.first_offset) * share)))
    found = _within(head, _Bound(head.first_offset), _Bound(after, is_estimate=True))
    if found is None:
        return None
    text = f"policy {policy.name!r} lets go of about these offsets at most; whole fragments go, and it may keep more"
    return JobWindow(
        found.first_offset, found.next_offset, is_estimate=True, warnings=(PreviewWarning(WarningCode.DELETES, text),)
    )
