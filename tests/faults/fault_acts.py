"""What can be done on a small archive: a command is run, or a function is invoked."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

from coldstream import errors
from coldstream.api import serving
from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.cli.main import app
from coldstream.cli.registry import COMMANDS
from coldstream.errors import ColdstreamError
from coldstream.local.http_api import http_event
from coldstream.local.http_exchange import Request
from coldstream.runtime import resolving
from tests.faults.faulty_world import FaultyWorld
from tests.support.asked_api import bearer
from tests.support.functions import FunctionContext, load_function

_UNEXPECTED = "coldstream: unexpected: "
"""What a command says that met what nobody thought of."""


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
ArgumentsOf = Callable[[FaultyWorld], Sequence[str]]


@dataclass(frozen=True, slots=True)
class CommandAct:
    """Runs a command in this process; `more` arguments may depend on the world."""

    arguments: tuple[str, ...]
    more: ArgumentsOf
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The command, and its verb: `hold put`."""
        name, *rest = self.arguments
        return f"{name} {rest[0]}" if rest and rest[0] in COMMANDS[name].verbs else name

    def __call__(self, world: FaultyWorld) -> Outcome:
        """Run it. The world notes that."""
        world.entered.add(self.name)
        with world.network.in_order():
            more = self.more(world)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code: Any = 0
        with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
            for name, value in self.variables.items():
                patch.setenv(name, value)
            try:
                _program()([*self.arguments, *more], prog_name="coldstream")
            except SystemExit as ended:
                code = ended.code
        shown, told = out.buffer.getvalue(), err.buffer.getvalue().decode()
        if not code:
            return Outcome(shown)
        return Outcome(shown, f"exit code {code}: {told}", _UNEXPECTED not in told)


@cache
def _program() -> Any:
    """Return the program, whose commands and options are made once."""
    return get_command(app)


def command(*arguments: str, more: ArgumentsOf = lambda world: ()) -> CommandAct:
    """Return what runs a command."""
    return CommandAct(arguments, more)


def with_bus(act: CommandAct) -> CommandAct:
    """Name the event bus to a command. Not to all: the doctor would look for its rules."""
    return replace(act, variables={"COLDSTREAM_EVENT_BUS": "default"})


@dataclass(frozen=True, slots=True)
class FunctionAct:
    """Invokes a function as a cold start does: its module is loaded anew."""

    function: str
    event_of: Callable[[FaultyWorld], Any]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function, as one: `upload function`."""
        return f"{self.function} function"

    def __call__(self, world: FaultyWorld) -> Outcome:
        """Invoke it. The world notes that."""
        world.entered.add(self.name)
        with redirect_stdout(io.StringIO()) as log, pytest.MonkeyPatch.context() as patch:
            for name, value in self.variables.items():
                patch.setenv(name, value)
            try:
                loaded = _tell_here(self.function, log)
                answer = loaded.lambda_handler(self.event_of(world), FunctionContext(self.function))
            except ColdstreamError as err:
                return Outcome(b"", f"{type(err).__name__}: {err}")
            except Exception as err:  # noqa: BLE001  this is what must not happen, and the judge says so
                return Outcome(b"", f"{type(err).__name__}: {err}", is_typed=False)
        return outcome_of(answer, log.getvalue())


def function(name: str, event_of: Callable[[FaultyWorld], Any] = lambda world: {}, **variables: str) -> FunctionAct:
    """Return what invokes a function, with more variables in its environment."""
    return FunctionAct(name, event_of, variables)


def _tell_here(name: str, log: io.StringIO) -> ModuleType:
    """Load a function, and have its logger write where a new process's does: loggers outlive what writes to them."""
    for opened in (serving.served, resolving.resolver):
        opened.cache_clear()  # in modules of the layer, which a cold start loads anew as well
    loaded = load_function(name)
    for known in list(logging.root.manager.loggerDict):
        for handler in logging.getLogger(known).handlers if known.startswith("coldstream") else ():
            if type(handler) is logging.StreamHandler:  # pytest's own are of other types
                handler.setStream(log)
    return loaded


def outcome_of(answer: Any, log: str) -> Outcome:
    """Judge what a function returned: a batch may have failures, of which the log says more; an API has a status."""
    shown = json.dumps(answer, sort_keys=True, default=str).encode()
    if isinstance(answer, dict) and answer.get("batchItemFailures"):
        return Outcome(shown, f"failed: {answer}, {log}")
    status = answer.get("statusCode", 200) if isinstance(answer, dict) else 200
    if status < HTTPStatus.BAD_REQUEST:
        return Outcome(shown)
    told = f"{status}: {answer.get('body')}"
    if status != HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome(shown, told, is_public=True)
    # Callers cannot mend what AWS does not permit, nor what is damaged, and are told no names: the log has them.
    return Outcome(shown, f"{told}, {log}", _has_logged_ours(log))


def _has_logged_ours(log: str) -> bool:
    """Tell whether the log of a function has errors, and all are ours."""
    lines = [json.loads(line) for line in log.splitlines()]
    # With a stack, its name is a fact of its own; without one, the error is shown.
    names = [name for line in lines if (name := line.get("exception_name") or line.get("error", "").partition("(")[0])]
    found = [getattr(errors, name, None) for name in names]
    return bool(found) and all(isinstance(one, type) and issubclass(one, ColdstreamError) for one in found)


def upload_event(*events: SegmentRolled | SegmentLost) -> dict[str, Any]:
    """Return what SQS brings the upload function of these events."""
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


def asked(target: str, scope: str | None = None) -> Callable[[FaultyWorld], dict[str, Any]]:
    """Return the event of a GET, by the bearer of a token with these scopes; by nobody known without them."""
    return sent("GET", target, scope=scope)


def sent(
    method: str, target: str, body: bytes = b"", *fields: tuple[str, str], scope: str | None = None
) -> Callable[[FaultyWorld], dict[str, Any]]:
    """Return the event of a request, as API Gateway brings it to a function."""
    event = http_event(Request(method, target, (("host", "localhost"), *fields), body, "127.0.0.1"))
    if scope is not None:
        event["requestContext"]["authorizer"] = bearer(scope)
    return lambda world: event
