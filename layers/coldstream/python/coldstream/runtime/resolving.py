"""The resolver function's work for a request, however it was read: permit, answer, count, log, report errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from coldstream.errors import ColdstreamError
from coldstream.resolve.answer import Answer, Description, RangesQuery
from coldstream.resolve.caller import Caller
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.problem import UNAVAILABLE, Problem, instance_of, problem_of
from coldstream.resolve.resolver import Resolver
from coldstream.runtime.archive_reads import archive_reads
from coldstream.runtime.audit import audited, start_text, super_start_text
from coldstream.store.settings import METRICS_NAMESPACE, Settings

if TYPE_CHECKING:
    from coldstream.manifest.shard_map import ShardMap
    from coldstream.resolve.super_answer import SuperAnswer, SuperQuery
    from coldstream.store.ports import StreamPage

RETRY_AFTER_S = 1

logger = Logger(service="coldstream-resolver")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="resolver")


@cache
def resolver() -> Resolver:
    """Make the resolver of this execution environment, at its first request: it keeps its caches and connections."""
    settings = Settings.from_environment()
    table, objects = archive_reads(settings)
    permissions = Permissions(
        table if settings.iam_permissions else None, settings.scope_claim if settings.token_permissions else None
    )
    return Resolver(table, objects, url_expiry_s=settings.url_expiry_s, permissions=permissions, now=objects.clock)


def answer_ranges(event: Mapping[str, Any], query: RangesQuery) -> Answer:
    """Answer a query for ranges if the caller may read that stream, and count the ranges and gaps."""
    names: dict[str, Any] = {"vhost": query.vhost, "stream": query.name, "incarnation": query.incarnation}
    with audited(event, "ranges", **names, start=start_text(query.start)) as line:
        # Before anything is looked up: what is denied must be denied alike, whether or not the stream exists.
        resolver().permissions.check(Caller.of(event), query.vhost, query.name)
        answer = resolver().ranges(query)
        line.answered(answer)
    metrics.add_metric("Ranges", MetricUnit.Count, len(answer.ranges))
    metrics.add_metric("GapsMet", MetricUnit.Count, 0 if answer.gap is None else 1)
    return answer


def answer_super_ranges(event: Mapping[str, Any], query: SuperQuery) -> SuperAnswer:
    """Answer a query for a sharded stream if the caller may read it and its partitions; count ranges and gaps."""
    with audited(event, "super-ranges", vhost=query.vhost, super=query.name, start=super_start_text(query)) as line:
        caller = Caller.of(event)
        resolver().permissions.check(caller, query.vhost, query.name)
        answer = resolver().super_ranges(query, resolver().permissions.of(caller))
        ranges = sum(len(one.ranges) for one in answer.partitions)
        gaps = sum(one.gap is not None for one in answer.partitions)
        line.fields |= {
            "revision": answer.revision,
            "ranges": ranges,
            # With their offsets, as what somebody has read of a partition is looked up by its name.
            "partitions": [[one.name, one.from_offset, one.next_offset] for one in answer.partitions if one.ranges],
        }
    metrics.add_metric("Ranges", MetricUnit.Count, ranges)
    metrics.add_metric("GapsMet", MetricUnit.Count, gaps)
    return answer


def answer_description(
    event: Mapping[str, Any], vhost: str, name: str, incarnation: str | None, *, deleted: bool
) -> Description:
    """Describe a stream if the caller may read it; with `deleted`, even if it is deleted."""
    with audited(event, "describe", vhost=vhost, stream=name, incarnation=incarnation) as line:
        resolver().permissions.check(Caller.of(event), vhost, name)
        description = resolver().describe(vhost, name, incarnation, deleted=deleted)
        line.fields["incarnation"] = description.head.stream.incarnation
    return description


def answer_shard_map(event: Mapping[str, Any], vhost: str, name: str) -> ShardMap:
    """Return the map of a logical name if the caller may read that name."""
    with audited(event, "super", vhost=vhost, super=name) as line:
        resolver().permissions.check(Caller.of(event), vhost, name)
        found = resolver().shard_map(vhost, name)
        line.fields["revision"] = found.revision
    return found


def answer_streams(event: Mapping[str, Any], cursor: str | None, limit: int, *, deleted: bool) -> StreamPage:
    """List the streams that the caller may read; with `deleted`, the deleted ones as well."""
    with audited(event, "list") as line:
        may_read = resolver().permissions.of(Caller.of(event))
        page = resolver().streams(cursor, limit, may_read=may_read, deleted=deleted)
        line.fields["streams"] = len(page.streams)
    return page


def report_error(err: Exception, request_id: str) -> tuple[Problem, dict[str, str]]:
    """Return the problem and the headers that report an error to the client. Log an error that is not the client's."""
    problem = problem_of(err, instance=instance_of(request_id))
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        retryable = isinstance(err, ColdstreamError) and err.retryable
        logger.error("request failed", problem=problem.type, retryable=retryable, exc_info=err)
        metrics.add_metric("Failures", MetricUnit.Count, 1)
    return problem, {"Retry-After": str(RETRY_AFTER_S)} if problem.type == UNAVAILABLE.type else {}
