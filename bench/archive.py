"""An archive that the upload function fills, and the resolver in front of it, on a local S3 and DynamoDB."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from bench.aws import BUCKET, function_config, function_environment
from bench.harness import CannotMeasureError, environment, in_child
from bench.load import sqs_event
from bench.template import handler_of
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.local.child_process import ChildProcess
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects


def archive(segments: Sequence[SegmentSlice], of: StreamId, sdk: Mapping[str, str], table: str) -> None:
    """Stage segments of a stream, and let the upload function archive them. Raises CannotMeasureError."""
    with environment(sdk):
        objects = S3Objects(BUCKET)
        events = [sqs_event(stage(segment, of, objects, Keys())) for segment in segments]
    run = in_child(
        "bench.aws:call_handler",
        {"name": "upload", "handler": handler_of("upload"), "events": events},
        {**sdk, **function_environment("upload", table=table)},
    )
    if run.answer["answers"] != [{"batchItemFailures": []}] * len(events):
        raise CannotMeasureError(f"the upload function did not archive the segments:\n{run.log[-4000:]}")


@contextmanager
def resolver(sdk: Mapping[str, str], table: str) -> Iterator[str]:
    """Serve the resolver function over HTTP, as `coldstream up` does, and yield its URL."""
    process = ChildProcess(
        "coldstream.local.function_process",
        environment={**os.environ, **sdk, **function_environment("resolver", table=table)},
        request=asdict(function_config("resolver", handler_of("resolver"), http=True)),
    )
    try:
        yield process.ready()["url"]
    finally:
        process.stop()
