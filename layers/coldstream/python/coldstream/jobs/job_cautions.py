"""Warnings that follow from what a job is to do, whatever the streams hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coldstream.jobs.preview_warning import PreviewWarning, WarningCode
from coldstream.jobs.specs import EraseSpec, JobSpec, LoadSpec, RetentionSpec, ScrubSpec
from coldstream.jobs.stream_forecast import StreamForecast
from coldstream.jobs.targets import ToStream
from coldstream.units import parse_size


def cautions_of(spec: JobSpec, streams: Sequence[StreamForecast]) -> Iterator[PreviewWarning]:
    """Yield what is to be known of a job as a whole."""
    match spec:
        case LoadSpec():
            yield from _of_load(spec, streams)
        case EraseSpec():
            text = "bytes of messages are erased for good: no command brings them back"
            yield PreviewWarning(WarningCode.DELETES, text)
        case RetentionSpec(dry_run=False):
            text = "what the policies let go is removed from the archive for good"
            yield PreviewWarning(WarningCode.DELETES, text)
        case ScrubSpec():
            yield from _of_scrub(spec, streams)
        case _:
            return


def _of_load(spec: LoadSpec, streams: Sequence[StreamForecast]) -> Iterator[PreviewWarning]:
    if spec.after_load == "delete":
        text = "once all of a stream's window is at the target, it is removed from the archive for good"
        yield PreviewWarning(WarningCode.DELETES, text)
    if not isinstance(spec.target, ToStream):
        return
    target_vhost = spec.target.vhost or spec.vhost
    if any((one.stream.vhost, one.stream.name) == (target_vhost, spec.target.name) for one in streams):
        text = "the target has the name of a stream that is loaded: if it is archived, these messages come in again"
        yield PreviewWarning(WarningCode.SAME_STREAM, text, spec.target.name)
    if len(streams) > 1:
        text = f"the messages of {len(streams)} streams come into one stream, in no order among the streams"
        yield PreviewWarning(WarningCode.MIXED, text)


def _of_scrub(spec: ScrubSpec, streams: Sequence[StreamForecast]) -> Iterator[PreviewWarning]:
    requests, read_bytes = sum(one.requests for one in streams), sum(one.read_bytes for one in streams)
    if requests > spec.max_requests:
        text = f"it needs about {requests:,} requests, of {spec.max_requests:,} at most: a run will not see everything"
        yield PreviewWarning(WarningCode.BOUND, text)
    if read_bytes > parse_size(spec.max_read):
        text = f"it reads about {read_bytes:,} bytes, of {spec.max_read} at most: a run will not see everything"
        yield PreviewWarning(WarningCode.BOUND, text)
