"""What the resolver function does for a request, whoever has read it: answer, count, log, tell of errors."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from coldstream.errors import ColdstreamError
from coldstream.runtime.archive_reads import archive_reads
from coldstream.runtime.settings import METRICS_NAMESPACE, Settings
from coldstream.serve.answer import Answer, RangesQuery
from coldstream.serve.problem import UNAVAILABLE, Problem, problem_of
from coldstream.serve.resolver import Resolver

RETRY_AFTER_S = 1

logger = Logger(service="coldstream-resolver")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="resolver")


@cache
def resolver() -> Resolver:
    """Make the resolver of this execution environment, at its first request."""
    settings = Settings.from_environment()
    table, objects = archive_reads(settings)
    return Resolver(table, objects, url_expiry_s=settings.url_expiry_s)


def answer_ranges(query: RangesQuery) -> Answer:
    """Answer a query for ranges, and count what was found."""
    answer = resolver().ranges(query)
    metrics.add_metric("Ranges", MetricUnit.Count, len(answer.ranges))
    metrics.add_metric("GapsMet", MetricUnit.Count, 0 if answer.gap is None else 1)
    return answer


def problem_to_tell(err: Exception, request_id: str) -> tuple[Problem, dict[str, str]]:
    """Return the problem that an error is to the client, with headers for it; log what is none of the client's."""
    problem = problem_of(err, instance=instance(request_id))
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        retryable = isinstance(err, ColdstreamError) and err.retryable
        logger.error("request failed", problem=problem.type, retryable=retryable, exc_info=err)
        metrics.add_metric("Failures", MetricUnit.Count, 1)
    return problem, {"Retry-After": str(RETRY_AFTER_S)} if problem.type == UNAVAILABLE.type else {}


def instance(request_id: str) -> str:
    """Name a request in a problem."""
    return f"urn:coldstream:request:{request_id}"
