"""The console function: pages in a browser, behind an HTTP API of its own that asks nobody who they are.

Tokens do that, from a secret that is read again every few minutes. Without any, there are no pages.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext
from mangum import Mangum
from starlette.applications import Starlette

from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.health import HealthSources, read_health
from coldstream.browse.names import StreamNames
from coldstream.console.app import make_console
from coldstream.console.archive_access import ArchiveAccess
from coldstream.console.console_options import ConsoleOptions
from coldstream.console.function_access import FunctionAccess
from coldstream.console.kept_health import KeptHealth
from coldstream.errors import ColdstreamError
from coldstream.jobs.store import JobStore
from coldstream.operate.aws_stack import AwsStack
from coldstream.operate.doctor import Doctor, StackPlace
from coldstream.runtime.package_log import log_with
from coldstream.store.open_archive import OpenArchive
from coldstream.store.secrets import read_secret
from coldstream.store.settings import METRICS_NAMESPACE

KEPT_S = 300
"""How long it may take until a token that was taken out of the secret is not taken any more."""

MAX_DOWNLOAD_BYTES = 4_000_000
"""An answer of a function has 6 MB at most, and base64 takes a third more than the bytes."""

OPTIONS = ConsoleOptions(
    requests_per_s=0,  # the API's own limits count, and each instance would have its own
    max_download_bytes=MAX_DOWNLOAD_BYTES,
    slice_bytes=16 << 20,
    slice_s=1.5,
)
logger = Logger(service="coldstream-console")
log_with(logger)
metrics = Metrics(namespace=METRICS_NAMESPACE, service="console")
_made: dict[str, tuple[Starlette, float]] = {}


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="requestContext.requestId")
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request of the HTTP API (payload format 2.0)."""
    metrics.add_metric("Requests", MetricUnit.Count, 1)
    try:
        application = _application()
    except ColdstreamError:
        logger.exception("the console cannot be shown")
        return {"statusCode": 503, "headers": {"Content-Type": "text/plain"}, "body": "The console is not set up.\n"}
    # Mangum takes the loop of its thread, or makes one that nobody closes: each request has a thread with its own.
    with ThreadPoolExecutor(1, "console") as threads:
        return threads.submit(_answered, application, event, context).result()


def _answered(application: Starlette, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        answer: dict[str, Any] = Mangum(application, lifespan="off")(event, context)  # type: ignore[arg-type]  # both know what a context is
    finally:
        loop.close()
    return answer


def _application() -> Starlette:
    """Return the application, made again once its tokens are old."""
    made = _made.get("console")
    if made is None or time.monotonic() >= made[1]:
        access = FunctionAccess.read(os.environ, read_secret)
        application = make_console(_archive(), OPTIONS, access.tokens, access.key)
        made = application, time.monotonic() + KEPT_S
        _made["console"] = made
    return made[0]


def _archive() -> ArchiveAccess:
    opened = OpenArchive.of_environment()
    table, objects, settings = opened.table, opened.objects, opened.settings
    place = StackPlace(settings.bucket, settings.table, None, None, None, None)
    sources = HealthSources(Doctor(place, table, objects, opened.keys, AwsStack(), objects.clock))
    return ArchiveAccess(
        table=table,
        objects=objects,
        names=StreamNames(table),
        catalogue=StreamCatalogue(table, now=objects.clock, in_background=False),
        jobs=JobStore(table),
        health=KeptHealth(partial(read_health, sources)),
    )
