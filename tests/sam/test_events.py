"""Events, template, functions and commands agree; Powertools accepts the events as AWS's own."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from typing import Any
from urllib.parse import parse_qsl

import pytest
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2, SQSEvent
from aws_lambda_powertools.utilities.parser.models import (
    APIGatewayProxyEventV2Model,
    EventBridgeModel,
    SqsModel,
)

from coldstream.archive.events import event_of
from coldstream.dispatch.job_queue import job_of, message_of
from coldstream.local.template import TemplateFunction, load_template
from coldstream.runtime.query import plain_query
from tests.support.cloudformation import Stack
from tests.support.sam import BUCKET, EVENTS, TEMPLATE
from tests.support.server import ROOT

FUNCTIONS = {function.name: function for function in load_template(TEMPLATE).functions}
NAMED = re.compile(r"(?:`|^ {4,}|&& )make ([a-z][a-z-]*)", re.MULTILINE)
"""A make target named in a document or a script."""


def read(event: str) -> Any:
    return json.loads((ROOT / f"events/{event}.json").read_text())


def of_functions(kind: str) -> list[tuple[TemplateFunction, str]]:
    """List functions that an API with IAM calls (`apis`), each with its events; the console's API asks nobody."""
    return [
        (function, event)
        for name, function in FUNCTIONS.items()
        if getattr(function, kind) and name != "ConsoleFunction"
        for event in EVENTS[name]
    ]


def test_every_function_of_the_template_has_sample_events_and_every_event_a_function() -> None:
    assert FUNCTIONS.keys() == EVENTS.keys()
    assert all(EVENTS.values())
    listed = sorted({f"{event}.json" for events in EVENTS.values() for event in events})
    assert listed == sorted(path.name for path in (ROOT / "events").iterdir())


@pytest.mark.parametrize("event", EVENTS["UploadFunction"])
def test_an_upload_s_event_is_an_event_of_the_bus_in_a_message_of_the_queue(event: str) -> None:
    sample = read(event)
    SqsModel.model_validate(sample)
    (record,) = SQSEvent(sample).records
    assert record.md5_of_body == hashlib.md5(record.body.encode()).hexdigest()
    EventBridgeModel.model_validate_json(record.body)
    event_of(record.body)


@pytest.mark.parametrize("event", EVENTS["JobRunnerFunction"])
def test_a_job_runner_s_event_is_a_message_that_names_a_job(event: str) -> None:
    sample = read(event)
    SqsModel.model_validate(sample)
    (record,) = SQSEvent(sample).records
    assert record.md5_of_body == hashlib.md5(record.body.encode()).hexdigest()
    assert message_of(job_of(record.body)) == record.body
    assert record.event_source_arn.rpartition(":")[2] == Stack().properties("JobsQueue")["QueueName"]


@pytest.mark.parametrize("event", EVENTS["UploadFunction"])
def test_an_upload_s_event_is_one_that_the_template_lets_through(event: str) -> None:
    stack = Stack()
    (rule,) = stack.of_type("AWS::Events::Rule").values()
    (record,) = SQSEvent(read(event)).records
    body = json.loads(record.body)
    assert all(body[name] in values for name, values in rule["EventPattern"].items())
    queues = [properties.get("QueueName") for properties in stack.of_type("AWS::SQS::Queue").values()]
    assert record.event_source_arn.rpartition(":")[2] in queues


@pytest.mark.parametrize(("function", "event"), of_functions("apis"))
def test_an_api_s_event_is_a_request_that_iam_let_through(function: TemplateFunction, event: str) -> None:
    sample = read(event)
    APIGatewayProxyEventV2Model.model_validate(sample)
    authorizer = APIGatewayProxyEventV2(sample).request_context.authorizer
    assert authorizer is not None
    assert authorizer.iam is not None
    assert authorizer.iam.user_arn
    assert dict(parse_qsl(sample["rawQueryString"])) == sample["queryStringParameters"]


@pytest.mark.parametrize(("function", "event"), of_functions("apis"))
def test_only_a_sample_that_asks_for_one_stream_s_ranges_is_a_plain_query(
    function: TemplateFunction, event: str
) -> None:
    sample = read(event)
    is_plain = sample["rawPath"] == "/ranges" and "super" not in sample["queryStringParameters"]
    assert (plain_query(sample) is not None) is is_plain


def test_the_announced_segment_is_in_the_bucket_of_the_emulated_aws() -> None:
    (record,) = SQSEvent(read("upload")).records
    assert json.loads(record.body)["detail"]["staged"]["bucket"] == BUCKET


def test_samconfig_speaks_of_commands_that_there_are() -> None:
    config = tomllib.loads((ROOT / "samconfig.toml").read_text())
    assert config["default"].keys() == {"global", "build", "validate", "deploy"}


def test_every_make_target_that_is_named_anywhere_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == targets
    places = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    places += [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    named = {target for path in places for target in NAMED.findall(path.read_text())}
    assert named >= {"test", "sam-local"}
    assert named <= targets
