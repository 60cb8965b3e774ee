"""Lookups by the resolver function's handler, in logs of a thousand and of a million fragments."""

from __future__ import annotations

import json
import random
from urllib.parse import urlencode

from bench.aws import Event, function_environment, sdk_environment
from bench.dynamodb import LocalDynamoDB
from bench.harness import Aim, CannotMeasureError, Cell, ChildRun, Section, in_child, percentile, say
from bench.load import FIRST_TIMESTAMP, stream
from bench.local_s3 import LocalS3
from bench.log import MS_A_FRAGMENT, OFFSETS_A_FRAGMENT, write_log
from bench.template import handler_of
from coldstream.local.http_api import http_event
from coldstream.local.http_exchange import Request
from coldstream.manifest.stream import StreamId

SIZES = (1_000, 1_000_000)
LOOKUPS = 500
WARM_UP = 50
MOST_OTHERS = 0.05
"""Requests a lookup beside Queries: once in ten seconds, the resolver looks whether the stream is deleted."""

HOW = f"""\
`GET /ranges` requests go to the resolver function's handler in a new process, one after the other, in API Gateway's
form, for random places in a stream that is named with its incarnation. Bounds are the defaults, so each answer has
four ranges with a presigned URL each. The manifest is in DynamoDB Local, whose own time for a Query, about 5 ms, is
part of the figures; no object exists. {LOOKUPS} lookups count, after {WARM_UP} that do not; every answer is
checked. Requests are those that the SDK sent, including retries."""

Query = dict[str, str | int]


def measure() -> Section:
    """Measure offsets and timestamps in logs of two sizes."""
    rows: list[tuple[Cell, ...]] = []
    costs = set()
    with LocalS3() as s3, LocalDynamoDB() as dynamodb:
        environment = {
            **sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url),
            **function_environment("resolver", table=dynamodb.table),
        }
        for number, fragments in enumerate(SIZES):
            of = stream(number)
            write_log(of, fragments, url=dynamodb.url, table=dynamodb.table)
            for what, query in (("offset", _offset), ("timestamp", _timestamp)):
                say(f"looking up: {LOOKUPS} times, by {what}")
                run = _look_up(of, [query(fragments) for _ in range(LOOKUPS + WARM_UP)], environment)
                requests: dict[str, int] = run.answer["requests"]
                queries = requests.get("dynamodb Query", 0) / LOOKUPS
                others = sum(requests.values()) / LOOKUPS - queries
                costs.add((what, queries, others))
                rows.append((fragments, what, *_times(run), queries, others))
        s3_requests = sum(s3.stats().values())
    queries_each = {(what, queries) for what, queries, _ in costs}
    most_others = max(others for *_, others in costs)
    met = queries_each == {("offset", 1), ("timestamp", 2)} and most_others <= MOST_OTHERS and s3_requests == 0
    return Section(
        title="Lookups",
        how=HOW,
        columns=("fragments", "by", "lookups/s", "p50 ms", "p99 ms", "CPU ms", "Queries", "other AWS requests"),
        rows=tuple(rows),
        aims=(
            Aim(
                "1 Query by offset, 2 by timestamp, no request to S3, and a GetItem in ten seconds, the same at a"
                " thousand and a million fragments",
                "; ".join(f"{what} {queries:g} and {others:g}" for what, queries, others in sorted(costs)),
                met,
            ),
        ),
    )


_dice = random.Random(1)


def _offset(fragments: int) -> Query:
    return {"offset": _dice.randrange(fragments * OFFSETS_A_FRAGMENT)}


def _timestamp(fragments: int) -> Query:
    return {"timestamp": _dice.randrange(FIRST_TIMESTAMP, FIRST_TIMESTAMP + fragments * MS_A_FRAGMENT)}


def _look_up(of: StreamId, queries: list[Query], environment: dict[str, str]) -> ChildRun:
    events = [_event(of, query) for query in queries]
    run = in_child(
        "bench.aws:call_handler",
        {"name": "resolver", "handler": handler_of("resolver"), "events": events, "warm_up": WARM_UP},
        environment,
        inherits=False,  # one variable more, such as AWS_CA_BUNDLE, and the resolver would leave all to the SDK
    )
    for query, answer in zip(queries[WARM_UP:], run.answer["answers"], strict=True):
        body = json.loads(answer["body"])
        if answer["statusCode"] != 200 or not _is_right(query, body["ranges"][0]):
            raise CannotMeasureError(f"a wrong answer to {query}: {body}")
    return run


def _is_right(query: Query, first: dict[str, int]) -> bool:
    if "offset" in query:
        return first["first_offset"] <= int(query["offset"]) < first["next_offset"]
    return first["first_timestamp"] <= int(query["timestamp"]) <= first["last_timestamp"]


def _event(of: StreamId, query: Query) -> Event:
    names: Query = {"vhost": of.vhost, "name": of.name, "incarnation": of.incarnation}
    target = f"/ranges?{urlencode(names | query)}"
    return http_event(Request("GET", target, (("host", "localhost"),), b"", "127.0.0.1"))


def _times(run: ChildRun) -> tuple[float, float, float, float]:
    seconds: list[float] = run.answer["seconds"]
    cpu_ms = 1000 * float(run.answer["cpu_s"]) / len(seconds)
    return len(seconds) / sum(seconds), 1000 * percentile(seconds, 50), 1000 * percentile(seconds, 99), cpu_ms
