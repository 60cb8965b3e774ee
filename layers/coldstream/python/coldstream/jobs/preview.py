"""What a job would do, before anybody creates it: which streams, how much it reads, what that costs, how long it takes.

    preview(table, spec, now_ms())

The work is bounded, whatever the archive's size: MAX_STREAMS streams are looked at, each by a few requests
(`stream_forecast`). So the figures are estimates, and say where they leave something out. Money is that of requests
and of reading from S3 by the list prices of `store.prices`; bytes that leave AWS's region cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from coldstream.jobs.job_cautions import cautions_of
from coldstream.jobs.preview_warning import PreviewWarning, WarningCode
from coldstream.jobs.sealing import sealed
from coldstream.jobs.specs import EraseSpec, JobKind, JobSpec, LoadSpec, StoreSpec
from coldstream.jobs.stream_forecast import StreamForecast, forecast
from coldstream.jobs.stream_patterns import MatchedStreams, match_streams
from coldstream.manifest.policy import Policy
from coldstream.manifest.stream import Incarnation, check_name
from coldstream.store.ports import ManifestReads
from coldstream.units import TimestampMs

MAX_STREAMS = 100
"""Streams that one preview looks at; of more that match, it says how many there are."""

MAX_WARNINGS = 100
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class JobPreview:
    """What a job would do.

    `streams` are those that were looked at, by name, and the sums are theirs alone; `matched` counts all that match.
    `is_cut` says that more may match than were looked at. `duration_s` is how long a limited rate makes it take, at
    least; None without one. `is_endless`: the job goes on until it is cancelled.
    """

    kind: JobKind
    streams: tuple[StreamForecast, ...]
    matched: int
    is_cut: bool
    is_endless: bool
    duration_s: float | None
    warnings: tuple[PreviewWarning, ...]

    @property
    def messages(self) -> int:
        """About how many messages it deals with."""
        return sum(one.messages for one in self.streams)

    @property
    def read_bytes(self) -> int:
        """About how many bytes it reads from the bucket."""
        return sum(one.read_bytes for one in self.streams)

    @property
    def requests(self) -> int:
        """About how many requests it sends, to table and bucket."""
        return sum(one.requests for one in self.streams)

    @property
    def usd(self) -> float:
        """About what requests and reads cost, in US dollars."""
        return sum(one.usd for one in self.streams)

    def to_dict(self) -> dict[str, Any]:
        """Return the preview for JSON."""
        return {
            "kind": self.kind.value,
            "matched_streams": self.matched,
            "is_cut": self.is_cut,
            "is_endless": self.is_endless,
            "messages": self.messages,
            "read_bytes": self.read_bytes,
            "requests": self.requests,
            "cost_usd": round(self.usd, 6),
            "duration_s": None if self.duration_s is None else round(self.duration_s, 3),
            "streams": [one.to_dict() for one in self.streams],
            "warnings": [one.to_dict() for one in self.warnings],
        }


def preview(table: ManifestReads, spec: JobSpec, now: TimestampMs, *, max_streams: int = MAX_STREAMS) -> JobPreview:
    """Return what a job would do if it began now. Nothing is written.

    Cost: that of `match_streams`, a Query for the policies of a retention, and that of `forecast` for each stream.
    Raises InvalidInputError for a spec that no job can be created from.
    """
    sealed(spec)
    matched = _matched(table, spec)
    policies = table.policies() if spec.kind is JobKind.RETENTION else ()
    looked_at = matched.streams[:max_streams]
    streams = _forecasts(table, spec, now, policies, looked_at)
    # The only incarnation of a name may be deleted; that shows in its head alone.
    count = len(matched.streams) - (len(looked_at) - len(streams))
    is_cut = matched.is_cut or count > len(streams)
    warnings = [
        *_scope_warnings(spec, matched, count, len(streams)),
        *cautions_of(spec, streams),
        *(warning for one in streams for warning in one.warnings),
    ]
    is_endless = isinstance(spec, StoreSpec) and spec.end is None
    is_endless |= (isinstance(spec, LoadSpec) and spec.follow) or spec.schedule is not None
    if len(warnings) > MAX_WARNINGS:
        left = len(warnings) - MAX_WARNINGS
        warnings[MAX_WARNINGS:] = [PreviewWarning(WarningCode.CUT, f"{left} more warnings are left out")]
    return JobPreview(spec.kind, streams, count, is_cut, is_endless, _duration_s(spec, streams), tuple(warnings))


def _matched(table: ManifestReads, spec: JobSpec) -> MatchedStreams:
    check_name("vhost", spec.vhost)
    if isinstance(spec, EraseSpec):
        check_name("stream", spec.stream)
        if spec.incarnation is None:
            return match_streams(table, spec.vhost, [spec.stream])
        head = table.head(Incarnation(spec.incarnation))
        if head is None or (head.stream.vhost, head.stream.name) != (spec.vhost, spec.stream):
            return MatchedStreams((), (spec.stream,))
        return MatchedStreams((head.stream,))
    for name in spec.streams:
        check_name("streams", name)
    return match_streams(table, spec.vhost, spec.streams)


def _forecasts(
    table: ManifestReads,
    spec: JobSpec,
    now: TimestampMs,
    policies: Sequence[Policy],
    streams: Sequence[Any],
) -> tuple[StreamForecast, ...]:
    if not streams:
        return ()
    with ThreadPoolExecutor(min(AT_ONCE, len(streams)), "preview") as pool:
        found = list(pool.map(lambda stream: forecast(table, spec, stream, now, policies), streams))
    return tuple(one for one in found if one is not None)


def _scope_warnings(spec: JobSpec, matched: MatchedStreams, count: int, looked_at: int) -> list[PreviewWarning]:
    found = []
    if matched.is_cut:
        text = "the archive has more streams than a preview looks through; others may match, too"
        found.append(PreviewWarning(WarningCode.CUT, text))
    if count > looked_at:
        text = f"{count} streams match; the sums are of the first {looked_at} by name"
        found.append(PreviewWarning(WarningCode.CUT, text))
    if isinstance(spec, StoreSpec):
        text = f"which streams broker {spec.broker!r} has is seen by the worker; listed are those archived already"
        return [*found, PreviewWarning(WarningCode.BROKER, text)]
    found += [
        PreviewWarning(WarningCode.NOTHING_MATCHES, f"{pattern!r} matches no archived stream of vhost {spec.vhost!r}")
        for pattern in matched.unmatched
    ]
    if not count and not matched.unmatched:
        text = f"no stream of vhost {spec.vhost!r} that matches is left: all are deleted"
        found.append(PreviewWarning(WarningCode.NOTHING_MATCHES, text))
    return found


def _duration_s(spec: JobSpec, streams: Sequence[StreamForecast]) -> float | None:
    """Return how long the largest stream takes at the job's rate, which is that of each stream."""
    if not isinstance(spec, LoadSpec) or spec.rate is None:
        return None
    return max((one.messages / spec.rate for one in streams), default=0.0)
