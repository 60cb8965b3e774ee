"""What a job would do with one stream: which offsets, about how many messages and bytes, requests and dollars.

The window's bounds are offsets, or times that the index by time turns into offsets, by two Queries each. A window of up
to SAMPLE fragments is added up from its entries. For a larger one the head's totals are taken in proportion to the
offsets: about right for a stream whose messages have about the same size at all times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coldstream.jobs.forecast_cost import ReadWork, work_of
from coldstream.jobs.forecast_window import JobWindow, window_of
from coldstream.jobs.preview_warning import PreviewWarning, WarningCode
from coldstream.jobs.specs import (
    CompactSpec,
    EraseSpec,
    JobSpec,
    LoadSpec,
    RetentionSpec,
    StoreSpec,
)
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.manifest.policy import Policy, match
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset, TimestampMs

SAMPLE = 100
"""Fragments of a window that are read, its oldest."""

MAX_GAPS = 100


@dataclass(frozen=True, slots=True)
class StreamForecast:
    """What a job would do with a stream. Offsets are None if it deals with nothing of it.

    `is_estimate` says that messages and bytes were not added up, but taken in proportion.
    """

    stream: StreamId
    first_offset: Offset | None
    next_offset: Offset | None
    messages: int
    read_bytes: int
    requests: int
    usd: float
    is_estimate: bool
    warnings: tuple[PreviewWarning, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON. Its warnings are the preview's."""
        return {
            "vhost": self.stream.vhost,
            "name": self.stream.name,
            "incarnation": self.stream.incarnation,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "messages": self.messages,
            "read_bytes": self.read_bytes,
            "requests": self.requests,
            "cost_usd": round(self.usd, 6),
            "is_estimate": self.is_estimate,
        }


@dataclass(frozen=True, slots=True)
class _Amount:
    """What a window holds."""

    messages: int
    object_bytes: int
    fragments: int
    is_estimate: bool


def forecast(
    table: ManifestReads, spec: JobSpec, stream: StreamId, now: TimestampMs, policies: Sequence[Policy] = ()
) -> StreamForecast | None:
    """Return what a job that begins now would do with a stream, None if that is deleted.

    Cost: a GetItem; two Queries for each bound that is a time; a Query for the window, one more if it has gaps.
    """
    head = table.head(stream.incarnation)
    if head is None or head.is_deleted:
        return None
    if isinstance(spec, StoreSpec):
        return StreamForecast(stream, head.next_offset, None, 0, 0, 0, 0.0, is_estimate=True)
    window = window_of(table, spec, head, now, policies)
    if window is None:
        warnings = tuple(_warned(stream, [_empty(spec, head, policies)]))
        return StreamForecast(stream, None, None, 0, 0, 0, 0.0, is_estimate=False, warnings=warnings)
    entries = table.log_from_offset(stream.incarnation, window.first_offset, SAMPLE).entries
    entries = tuple(entry for entry in entries if entry.first_offset < window.next_offset)
    amount = _amount(head, window, entries)
    work = work_of(spec, amount.object_bytes, amount.fragments, _class_of(entries))
    told = [*window.warnings, *_found(table, spec, head, window, entries)]
    return _told(stream, window, amount, work, tuple(_warned(stream, told)))


def _told(
    stream: StreamId, window: JobWindow, amount: _Amount, work: ReadWork, warnings: tuple[PreviewWarning, ...]
) -> StreamForecast:
    return StreamForecast(
        stream,
        window.first_offset,
        window.next_offset,
        amount.messages,
        work.read_bytes,
        work.requests,
        work.usd,
        amount.is_estimate or window.is_estimate,
        warnings,
    )


def _amount(head: Head, window: JobWindow, entries: Sequence[FragmentEntry]) -> _Amount:
    """Add up the entries of a window if they are all of it; else take the head's totals in proportion."""
    if window.first_offset <= (head.first_offset or 0) and window.next_offset == head.next_offset:
        return _Amount(head.messages, head.object_bytes, head.fragments, is_estimate=False)
    if len(entries) < SAMPLE:
        parts = [(entry, _share(entry, window)) for entry in entries]
        return _Amount(
            round(sum(entry.messages * share for entry, share in parts)),
            round(sum(entry.object_bytes * share for entry, share in parts)),
            len(entries),
            is_estimate=any(share < 1 for _, share in parts),
        )
    offsets = max(1, (head.next_offset or 0) - (head.first_offset or 0))
    share = min(1.0, (window.next_offset - window.first_offset) / offsets)
    return _Amount(
        round(head.messages * share),
        round(head.object_bytes * share),
        max(len(entries), round(head.fragments * share)),
        is_estimate=True,
    )


def _share(entry: FragmentEntry, window: JobWindow) -> float:
    first, end = max(entry.first_offset, window.first_offset), min(entry.next_offset, window.next_offset)
    return max(0, end - first) / (entry.next_offset - entry.first_offset)


def _class_of(entries: Sequence[FragmentEntry]) -> str | None:
    """Return the storage class of a window's oldest fragment: none of it is in a colder one."""
    return entries[0].storage_class if entries else None


def _found(
    table: ManifestReads, spec: JobSpec, head: Head, window: JobWindow, entries: Sequence[FragmentEntry]
) -> list[PreviewWarning]:
    found = []
    # Retention reads no message: neither gaps nor cold classes are in its way.
    reads = not isinstance(spec, RetentionSpec)
    if reads and (gaps := _gaps(table, head, window)):
        missing = sum(gap.next_offset - gap.first_offset for gap in gaps)
        more = "at least " if len(gaps) == MAX_GAPS else ""
        reasons = ", ".join(sorted({gap.reason or "not archived, reason unknown" for gap in gaps}))[:300]
        text = f"{more}{len(gaps)} gaps of {missing:,} offsets together: {reasons}"
        found.append(PreviewWarning(WarningCode.GAPS, text))
    cold = [entry for entry in entries if entry.storage_class is not None and entry.storage_class.must_be_restored]
    if reads and cold:
        text = f"{len(cold)} of the oldest {len(entries)} fragments are in {cold[0].storage_class}: run"
        found.append(PreviewWarning(WarningCode.COLD, f"{text} `coldstream restore` before, or they are skipped"))
    if head.quarantined:
        text = f"{head.quarantined} segments are in quarantine: what only they hold is a gap"
        found.append(PreviewWarning(WarningCode.QUARANTINE, text))
    removes = isinstance(spec, EraseSpec | CompactSpec | RetentionSpec)
    removes |= isinstance(spec, LoadSpec) and spec.after_load == "delete"
    if head.holds and removes:
        text = f"{head.holds} legal holds: what they protect stays as it is"
        found.append(PreviewWarning(WarningCode.HOLDS, text))
    return found


def _gaps(table: ManifestReads, head: Head, window: JobWindow) -> list[Gap]:
    if not head.gaps:
        return []
    shown = table.gaps(head.stream.incarnation, MAX_GAPS, from_offset=window.first_offset)
    return [gap for gap in shown if gap.first_offset < window.next_offset]


def _empty(spec: JobSpec, head: Head, policies: Sequence[Policy]) -> PreviewWarning:
    if isinstance(spec, RetentionSpec):
        if match(policies, head.stream) is None:
            return PreviewWarning(WarningCode.NO_POLICY, "no policy is for it: all of it is kept")
        return PreviewWarning(WarningCode.EMPTY_WINDOW, "its policy lets go of nothing now")
    if head.first_offset is None:
        return PreviewWarning(WarningCode.EMPTY_WINDOW, "nothing is archived")
    text = f"nothing of its offsets {head.first_offset} to {head.next_offset} is within the window"
    return PreviewWarning(WarningCode.EMPTY_WINDOW, text)


def _warned(stream: StreamId, warnings: Sequence[PreviewWarning]) -> list[PreviewWarning]:
    return [PreviewWarning(one.code, one.text, stream.name) for one in warnings]
