"""What comes from outside as JSON: events of agents, bodies of requests, answers of a resolver, definitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from coldstream.api.request_body import json_object
from coldstream.archive.envelope import DETAIL_TYPE, LOST_DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of, event_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.dispatch.emr_report import EmrReport
from coldstream.errors import InvalidInputError
from coldstream.jobs.specs import parse_spec, stored
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.resolve.answer import Answer
from coldstream.resolve.api import AnswerBody
from coldstream.resolve.bodies import answer_body
from coldstream.serve.protocol.json_messages import split_messages
from coldstream.shards.definition_file import definitions_of
from coldstream.units import Offset
from tests.fuzz.fuzz_target import INVALID, FuzzTarget, choose, chosen, same
from tests.support.golden import golden_logs

_DEEP = b"[" * 1500
_STREAM = StreamId("/", "örders", incarnation("__orders_1763700000000000000"))


def _event(data: bytes) -> None:
    found = event_of(data.decode("utf-8", "surrogateescape"))
    source = SOURCE + (f".{found.cluster}" if found.cluster else "")
    kind = DETAIL_TYPE if isinstance(found, SegmentRolled) else LOST_DETAIL_TYPE
    same(event_of(_envelope(source, kind, detail_of(found))), found)


def _envelope(source: str, kind: str, detail: str) -> str:
    return json.dumps({"source": source, "detail-type": kind, "detail": json.loads(detail)})


def _request(data: bytes) -> None:
    body = json_object(
        {"body": data.decode("latin-1"), "isBase64Encoded": False, "headers": {"content-type": "application/json"}}
    )
    stored(parse_spec(body))


def _messages(data: bytes) -> None:
    found = split_messages(data)
    for one in found:
        json.loads(one)


def _answer(data: bytes) -> None:
    try:
        found = AnswerBody.model_validate_json(data).value()
    except (ValidationError, ValueError):
        return  # as the client takes it, which names the resolver
    same(isinstance(found, Answer), True)


def _definitions(data: bytes) -> None:
    definitions_of(data.decode("utf-8", "surrogateescape"), source="shards.json")


def _report(data: bytes) -> None:
    EmrReport.from_bytes(data)


_READERS: tuple[Callable[[bytes], Any], ...] = (_request, _messages, _answer, _definitions, _report)


def _body(data: bytes) -> None:
    read, rest = choose(data, _READERS)
    read(rest)


def _event_seeds() -> Iterator[bytes]:
    rolled = SegmentRolled(
        stream=_STREAM,
        first_offset=Offset(0),
        next_offset=Offset(1000),
        size_bytes=12345,
        bucket="archive",
        staged_key=f"staging/{_STREAM.incarnation}/{0:020}-{1000:020}.segment",
        cut_every_ms=3_600_000,
        etag='"9b2cf535f27731c974343645a3985328"',
    )
    lost = SegmentLost(stream=_STREAM, first_offset=Offset(5), next_offset=Offset(9), reason="the disk was full")
    yield _envelope(SOURCE, DETAIL_TYPE, detail_of(rolled)).encode()
    yield _envelope(f"{SOURCE}.main", LOST_DETAIL_TYPE, detail_of(lost)).encode()
    for log in golden_logs():
        stream = StreamId(log.vhost, log.stream, incarnation(log.incarnation))
        yield _envelope(SOURCE, LOST_DETAIL_TYPE, detail_of(SegmentLost(stream, Offset(0), Offset(1), "gone"))).encode()
    yield _DEEP


def _body_seeds() -> Iterator[bytes]:
    jobs = (
        {"kind": "compact", "streams": ["orders*"]},
        {"kind": "scrub", "deep": True},
        {"kind": "retention", "dry_run": True},
        {"kind": "export", "streams": ["a"], "start": "first", "destination": "s3://b/p", "format": "jsonl"},
        {"kind": "store", "streams": ["a"], "broker": "rabbitmq-stream://guest:guest@localhost"},
        {"kind": "load", "stream": "a", "target": {"kind": "stream", "name": "b"}},
        {"kind": "erase", "stream": "a", "reason": "a ticket", "offsets": [1, 2]},
    )
    for job in jobs:
        yield chosen(0, json.dumps(job).encode())
    yield chosen(1, b'[{"a": 1.5e3}, "\\u00e4", null, [], -0]')
    yield chosen(2, json.dumps(answer_body(Answer(_STREAM, tail=Offset(5)))).encode())
    yield chosen(3, b'{"shards": [{"name": "orders", "kind": "super-stream", "partitions": 4}]}')
    yield chosen(3, b'[[shards]]\nname = "orders"\npartitions = 2')
    yield chosen(4, b'{"messages": 5, "bytes": 7, "errors": ["a"], "failures": [{"where": "b"}], "damages": {"c": 1}}')
    for number in range(len(_READERS)):
        yield chosen(number, _DEEP)


TARGETS = (
    FuzzTarget("events", _event, _event_seeds, INVALID),
    FuzzTarget("bodies", _body, _body_seeds, (InvalidInputError,)),
)
