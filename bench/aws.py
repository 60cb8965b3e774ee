"""A function as it runs on AWS: its handler in a process with its environment, with local services."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.awsrequest import AWSPreparedRequest
from botocore.httpsession import URLLib3Session

from bench.harness import LAYER, ROOT, Stopwatch
from coldstream.local.function_protocol import FunctionConfig
from coldstream.local.invoker import Invoker
from coldstream.store.fast_reads import FastTable
from coldstream.store.reads import Operation

BUCKET = "bench"
Event = dict[str, Any]


def sdk_environment(*, s3_url: str, dynamodb_url: str) -> dict[str, str]:
    """Return the variables that lead an SDK to S3 and DynamoDB."""
    return {
        "AWS_ENDPOINT_URL_S3": s3_url,
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def function_environment(name: str, *, table: str) -> dict[str, str]:
    """Return the variables that a function of functions/ has besides `sdk_environment`: its path and settings."""
    return {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "functions" / name), str(ROOT), str(LAYER))),
        "COLDSTREAM_BUCKET": BUCKET,
        "COLDSTREAM_TABLE": table,
        "POWERTOOLS_METRICS_NAMESPACE": "coldstream",
        "POWERTOOLS_LOG_LEVEL": "WARNING",
    }


def function_config(name: str, handler: str, *, http: bool = False) -> FunctionConfig:
    """Return the config that describes a function to its runner."""
    arn = f"arn:aws:lambda:us-east-1:000000000000:function:{name}"
    return FunctionConfig(name=name, arn=arn, handler=handler, timeout_s=900, memory_mb=1024, queues=(), http=http)


def call_handler(name: str, handler: str, events: list[Event], warm_up: int = 0) -> dict[str, Any]:
    """Call a handler for one event after the other. Called by `harness.in_child`.

    Returns `answers`, `seconds` (of each), `cpu_s` (of all), and `requests`, the AWS requests by kind. The first
    `warm_up` events do not count.
    """
    invoke = Invoker(function_config(name, handler))
    for event in events[:warm_up]:
        invoke(event)
    answers, seconds = [], []
    with counted_requests() as requests, Stopwatch() as total:
        for event in events[warm_up:]:
            with Stopwatch() as stopwatch:
                answers.append(invoke(event))
            seconds.append(stopwatch.seconds)
    return {"answers": answers, "seconds": seconds, "cpu_s": total.cpu_s, "requests": requests}


@contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """Count the HTTP requests to AWS, by service and operation: `dynamodb Query`, `s3 GET`."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()
    send, send_operation = URLLib3Session.send, FastTable._send  # noqa: SLF001  # botocore's attempts, and the fast reader's

    def counted(self: URLLib3Session, request: AWSPreparedRequest) -> Any:
        with lock:
            counts[_kind(request)] += 1
        return send(self, request)

    def counted_operation(self: FastTable, operation: Operation, body: bytes, what: str) -> Any:
        with lock:
            counts[f"dynamodb {operation}"] += 1
        return send_operation(self, operation, body, what)

    URLLib3Session.send = counted  # type: ignore[assignment, method-assign] # botocore has no hook for each attempt
    FastTable._send = counted_operation  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield counts
    finally:
        URLLib3Session.send = send  # type: ignore[method-assign]
        FastTable._send = send_operation  # type: ignore[method-assign]  # noqa: SLF001


def _kind(request: AWSPreparedRequest) -> str:
    target: Any = request.headers.get("X-Amz-Target")
    if target is not None:
        return f"dynamodb {target.decode().rpartition('.')[2]}"
    return "s3 COPY" if "x-amz-copy-source" in request.headers else f"s3 {request.method}"
