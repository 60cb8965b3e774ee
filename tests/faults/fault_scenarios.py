"""What people and events have an archive do: commands that ask a store, and functions, on a small archive."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from http import HTTPStatus
from types import ModuleType
from typing import Any

from coldstream.archive.events import DETAIL_TYPE, SOURCE, detail_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.cli.main import app
from coldstream.errors import ColdstreamError
from coldstream.local.http_api import http_event
from coldstream.local.http_exchange import Request
from coldstream.units import Offset
from tests.faults.faulty_world import ORDERS, REBUILT, TABLE, FaultyWorld
from tests.support.functions import FunctionContext, load_function

UNEXPECTED = 1
"""The exit code of a command that met what nobody thought of."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: `problem` is what it says of an error, None for success. Of errors, ours are typed.

    What is told in public, to callers of an API, does not name tables and buckets.
    """

    shown: bytes
    problem: str | None = None
    is_typed: bool = True
    is_public: bool = False


Act = Callable[[FaultyWorld], Outcome]


@dataclass(frozen=True, slots=True)
class FaultScenario:
    """Something to do. `prepared` comes before, without faults.

    `is_exact`: what it shows is always the same. `again` tells whether it can be done again after it was done: else
    doing it again may be refused. What is archived is read from `table` afterwards.
    """

    name: str
    act: Act
    uploaded: int = 2
    prepared: tuple[Act, ...] = field(default=())
    is_exact: bool = False
    again: bool = True
    table: str = TABLE


def command(*arguments: str, unexpected: int = UNEXPECTED) -> Act:
    """Run a command in this process."""

    def act(_: FaultyWorld) -> Outcome:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code: Any = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                app(list(arguments), prog_name="coldstream")
            except SystemExit as ended:
                code = ended.code
        shown, told = out.buffer.getvalue(), err.buffer.getvalue().decode()
        if not code:
            return Outcome(shown)
        return Outcome(shown, f"exit code {code}: {told}", code != unexpected)

    return act


def function(name: str, event_of: Callable[[FaultyWorld], Any] = lambda world: {}) -> Act:
    """Invoke a function as a cold start does: its module is loaded anew."""

    def act(world: FaultyWorld) -> Outcome:
        with redirect_stdout(io.StringIO()) as log:
            try:
                answer = _tell_here(name, log).lambda_handler(event_of(world), FunctionContext(name))
            except ColdstreamError as err:
                return Outcome(b"", f"{type(err).__name__}: {err}")
            except Exception as err:  # noqa: BLE001  this is what must not happen, and the judge says so
                return Outcome(b"", f"{type(err).__name__}: {err}", is_typed=False)
        return _outcome_of(answer, log.getvalue())

    return act


def _tell_here(name: str, log: io.StringIO) -> ModuleType:
    """Load a function, and have its logger write where a new process's does: loggers outlive what writes to them."""
    loaded = load_function(name)
    for known in list(logging.root.manager.loggerDict):
        for handler in logging.getLogger(known).handlers if known.startswith("coldstream-") else ():
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(log)
    return loaded


def _outcome_of(answer: Any, log: str) -> Outcome:
    """Judge what a function returned: a batch may have failures, of which the log says more; an API has a status."""
    shown = json.dumps(answer, sort_keys=True, default=str).encode()
    if isinstance(answer, dict) and answer.get("batchItemFailures"):
        return Outcome(shown, f"failed: {answer}, {log}")
    status = answer.get("statusCode", 200) if isinstance(answer, dict) else 200
    if status < HTTPStatus.BAD_REQUEST:
        return Outcome(shown)
    is_typed = status != HTTPStatus.INTERNAL_SERVER_ERROR
    return Outcome(shown, f"{status}: {answer.get('body')}", is_typed, is_public=True)


def _sqs(*events: SegmentRolled | SegmentLost) -> dict[str, Any]:
    record = {
        "receiptHandle": "handle",
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "0"},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:upload",
        "awsRegion": "eu-central-1",
    }
    bodies = [
        {
            "source": SOURCE,
            "detail-type": DETAIL_TYPE if isinstance(event, SegmentRolled) else "Segment Lost",
            "detail": json.loads(detail_of(event)),
        }
        for event in events
    ]
    return {
        "Records": [
            {**record, "messageId": str(number), "body": json.dumps(body)} for number, body in enumerate(bodies)
        ]
    }


def _request(target: str) -> Callable[[FaultyWorld], dict[str, Any]]:
    event = http_event(Request("GET", target, (("host", "api.test"),), b"", "127.0.0.1"))
    return lambda world: event


_LOST = SegmentLost(ORDERS, Offset(5000), Offset(5001), "the disk was full")
_YES = ("--yes", "--by", "alice")
_POLICY = command("policy", "set", "all", "--streams", "*/*", "--max-age", "36500d")
_DELETE = command("delete", "orders", *_YES)
_TRUNCATE = command("truncate", "orders", "--to", "171", *_YES)
_CREATE_JOB = command("jobs", "create", "scrub", "--idempotency-key", "a-key", "--by", "alice")
_HOLD = command("hold", "put", "orders", "--reason", "a lawsuit", "--by", "alice")
_ASKED = _request("/ranges?vhost=%2F&name=orders&spec=first")

SCENARIOS: dict[str, FaultScenario] = {
    scenario.name: scenario
    for scenario in (
        FaultScenario("read", command("read", "orders", "--from", "first"), is_exact=True),
        FaultScenario("read raw from an offset", command("read", "orders", "--from", "150", "--raw"), is_exact=True),
        FaultScenario("streams", command("streams")),
        FaultScenario("describe", command("describe", "orders", "-o", "json")),
        FaultScenario("resolve", command("resolve", "orders", "first"), is_exact=True),
        FaultScenario("history", command("history", "orders", "-o", "json")),
        FaultScenario("doctor", command("doctor", unexpected=70)),
        FaultScenario("scrub", command("scrub", "orders", "--deep", "--restart")),
        FaultScenario("compact", command("compact", "orders", "--older-than", "0s", "--jobs", "1")),
        FaultScenario(
            "compact into zstd",
            command("compact", "orders", "--older-than", "0s", "--encoding", "zstd-seekable", "--jobs", "1"),
        ),
        FaultScenario("truncate", _TRUNCATE, uploaded=3),
        FaultScenario("delete", _DELETE, again=False),
        FaultScenario(
            "undelete",
            command("undelete", "orders", "--by", "bob"),
            prepared=(_DELETE,),
            again=False,
        ),
        FaultScenario(
            "sweep",
            command("sweep", "--yes"),
            prepared=(_TRUNCATE,),
            uploaded=3,
        ),
        FaultScenario("garbage", command("garbage", "--delete", "--yes", "--older-than", "1h")),
        FaultScenario("rebuild", command("rebuild", "orders", "--to-table", REBUILT, "--jobs", "1"), table=REBUILT),
        FaultScenario(
            "erase",
            command("erase", "orders", "--offsets", "10:20", "--reason", "a ticket", "--with-quarantine", *_YES),
            uploaded=5,
            again=False,
        ),
        FaultScenario(
            "hold",
            command("hold", "put", "orders", "--reason", "a lawsuit", "--by", "alice"),
            again=False,
        ),
        FaultScenario("policy", _POLICY),
        FaultScenario("access", command("access", "grant", "arn:aws:iam::1:role/a", "%2F/orders*")),
        FaultScenario(
            "retention",
            command("retention", "run", "--yes"),
            prepared=(_POLICY,),
        ),
        FaultScenario("quarantine", command("quarantine", "list"), is_exact=True),
        FaultScenario("jobs", _CREATE_JOB),
        FaultScenario("jobs list", command("jobs", "list"), prepared=(_CREATE_JOB,)),
        FaultScenario("upload", function("upload", lambda world: _sqs(*world.staged))),
        FaultScenario("upload of a loss", function("upload", lambda world: _sqs(_LOST))),
        FaultScenario("resolver", function("resolver", _ASKED)),
        FaultScenario("resolver of streams", function("resolver", _request("/streams"))),
        FaultScenario("sweep function", function("sweep")),
        FaultScenario("garbage function", function("garbage")),
        FaultScenario("scrub function", function("scrub")),
        FaultScenario("retention function", function("retention")),
        FaultScenario("erase function", function("erase")),
    )
}
