"""What serves: streams over HTTP, the console, the API's writes, the gateway's history, and the agent's archive.

Of a command that listens, it is what it does with stores, without its sockets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3

from coldstream.console.stream_address import path_of
from tests.faults.agent_acts import announce_as_agent, find_staged, forget_staged
from tests.faults.fault_acts import FunctionAct, Outcome, function, sent
from tests.faults.fault_scenario import FaultScenario
from tests.faults.faulty_world import ORDERS, FaultyWorld
from tests.faults.follower_acts import follow_archive
from tests.faults.gateway_acts import find_noted, read_as_gateway
from tests.faults.job_acts import create_job
from tests.faults.serve_acts import find_posted, post_and_read

_WRITES = "coldstream.jobs:write coldstream.jobs:read coldstream.read:*/*"
_JSON = ("content-type", "application/json")
_PAGE = ("sec-fetch-site", "same-origin")
_FORM = ("content-type", "application/x-www-form-urlencoded")
_PATH = path_of(ORDERS)


_SECRET = "console-of-7f3a"


def _create_secret(_: FaultyWorld) -> Outcome:
    """Create the console's secret. It has no token, so only a caller on this machine gets pages."""
    content = json.dumps({"tokens": "", "key": "k" * 32})
    boto3.client("secretsmanager").create_secret(Name=_SECRET, SecretString=content)
    return Outcome(b"")


def _console(event_of: Callable[[FaultyWorld], Any]) -> FunctionAct:
    return function("console", event_of, COLDSTREAM_LOCAL="true", COLDSTREAM_CONSOLE_SECRET=_SECRET)


def _page(name: str, path: str) -> FaultScenario:
    return FaultScenario(f"console's {name}", _console(sent("GET", path)), prepared=(_create_secret,))


SERVING = (
    FaultScenario(
        "API creates a job",
        function(
            "api",
            sent(
                "POST",
                "/v1/jobs",
                json.dumps({"kind": "scrub"}).encode(),
                _JSON,
                ("idempotency-key", "a-key"),
                scope=_WRITES,
            ),
        ),
    ),
    _page("streams", "/streams"),
    _page("stream", _PATH),
    _page("messages", f"{_PATH}/messages"),
    _page("health", "/health"),
    FaultScenario("console's jobs", _console(sent("GET", "/jobs")), prepared=(_create_secret, create_job("scrub"))),
    FaultScenario(
        "console creates a job",
        _console(sent("POST", "/jobs/new", b"kind=scrub&step=create&idempotency_key=a-key", _FORM, _PAGE)),
        prepared=(_create_secret,),
    ),
    FaultScenario("follower of the archive", follow_archive, is_exact=True),
    FaultScenario(  # it ends once all is archived, however long that takes
        "server of streams", post_and_read, after=(find_posted,), outage=8, of=frozenset({"serve"})
    ),
    FaultScenario("gateway's history", read_as_gateway, after=(find_noted,), is_exact=True, of=frozenset({"gateway"})),
    FaultScenario(
        "agent", announce_as_agent, prepared=(forget_staged,), after=(find_staged,), uploaded=1, of=frozenset({"agent"})
    ),
)
