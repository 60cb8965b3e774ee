"""template.yaml, the sample events, and the code that they speak of agree."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from coldstream.archive.lost import SegmentLost
from coldstream.archive.rolled import SegmentRolled
from coldstream.local.http_api import Request, http_event
from coldstream.local.messages import QueueConfig
from coldstream.local.poller import sqs_event
from coldstream.local.template import Function, Template, load_template
from coldstream.runtime import settings
from coldstream.runtime.events import DETAIL_TYPE, LOST_DETAIL_TYPE, SOURCE, event_of
from coldstream.store.items import Item
from coldstream.store.keys import Keys
from coldstream.units import MIB

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def template() -> Template:
    return load_template(ROOT / "template.yaml")


def by_name(template: Template, name: str) -> Function:
    return next(function for function in template.functions if function.name == name)


def test_the_template_is_what_cloudformation_takes() -> None:
    lint = [sys.executable, "-c", "from cfnlint.runner import main; main()", str(ROOT / "template.yaml")]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_function_has_its_handler_and_is_called_by_something(template: Template) -> None:
    assert {function.name for function in template.functions} == {"UploadFunction", "ResolverFunction"}
    for function in template.functions:
        module, _, name = function.handler.rpartition(".")
        code = ast.parse((function.code / f"{module}.py").read_text())
        assert name in {node.name for node in code.body if isinstance(node, ast.FunctionDef)}
        assert function.queues or function.apis
        assert function.layers == (ROOT / "layers/coldstream/python",)


def test_the_upload_queue_hides_a_message_six_times_as_long_as_the_function_may_take(template: Template) -> None:
    upload = by_name(template, "UploadFunction")
    queue = template.body["Resources"][upload.queues[0].queue_arn["Fn::GetAtt"][0]]
    assert queue["Properties"]["VisibilityTimeout"] >= 6 * upload.timeout_s
    assert upload.queues[0].reports_failures
    assert queue["Properties"]["RedrivePolicy"]["maxReceiveCount"] >= 3


def test_parameters_have_the_defaults_and_bounds_of_the_settings(template: Template) -> None:
    parameters = template.body["Parameters"]
    fragment, expiry = parameters["FragmentBytes"], parameters["UrlExpirySeconds"]
    assert (fragment["MinValue"], fragment["Default"]) == (settings.MIN_FRAGMENT_BYTES, settings.DEFAULT_FRAGMENT_BYTES)
    assert fragment["MaxValue"] <= settings.MAX_FRAGMENT_BYTES
    assert (expiry["Default"], expiry["MaxValue"]) == (settings.DEFAULT_URL_EXPIRY_S, settings.MAX_URL_EXPIRY_S)
    assert parameters["Prefix"]["Default"] == settings.Settings("bucket", "table").prefix


def test_three_fragments_of_the_greatest_size_fit_into_the_temporary_storage_that_a_function_has(
    template: Template,
) -> None:
    assert 3 * template.body["Parameters"]["FragmentBytes"]["MaxValue"] < 512 * MIB


def test_the_table_has_the_keys_and_the_index_that_the_store_uses(template: Template) -> None:
    table = template.body["Resources"]["Table"]["Properties"]
    hash_key, range_key = Item._hash_keyname, Item._range_keyname
    assert [key["AttributeName"] for key in table["KeySchema"]] == [hash_key, range_key]
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["IndexName"] == Item.by_time.Meta.index_name
    assert [key["AttributeName"] for key in index["KeySchema"]] == [hash_key, "time"]


def test_the_outputs_are_the_settings_of_clients(template: Template) -> None:
    assert set(template.outputs) == {"Bucket", "Prefix", "Table", "EventBus", "ResolverUrl"}
    assert template.api_outputs == ("ResolverUrl",)


def test_the_rule_lets_every_event_of_the_agent_through_and_no_other(template: Template) -> None:
    pattern = template.body["Resources"]["SegmentRolledRule"]["Properties"]["EventPattern"]
    assert pattern == {"source": [SOURCE], "detail-type": [DETAIL_TYPE, LOST_DETAIL_TYPE]}


def test_the_sample_of_an_upload_event_is_an_event_that_announces_a_segment() -> None:
    (record,) = json.loads((ROOT / "events/upload.json").read_text())["Records"]
    segment = event_of(record["body"])
    assert isinstance(segment, SegmentRolled)
    stream = segment.stream
    assert segment.staged_key == Keys().staged(stream.incarnation, segment.first_offset, segment.next_offset)
    of_the_form_that_the_poller_makes(record)


def test_the_sample_of_a_loss_is_an_event_that_announces_one() -> None:
    (record,) = json.loads((ROOT / "events/lost.json").read_text())["Records"]
    assert isinstance(event_of(record["body"]), SegmentLost)
    of_the_form_that_the_poller_makes(record)


def of_the_form_that_the_poller_makes(record: dict[str, Any]) -> None:
    message = {"MessageId": "1", "ReceiptHandle": "r", "Body": "b", "MD5OfBody": "m", "Attributes": {}}
    (ours,) = sqs_event([message], QueueConfig("url", record["eventSourceARN"], 1, reports_failures=True))["Records"]
    assert set(record) == set(ours)
    assert record["awsRegion"] == ours["awsRegion"]


def test_the_sample_of_a_resolver_event_is_of_the_form_that_the_local_api_makes() -> None:
    event = json.loads((ROOT / "events/resolver.json").read_text())
    target = f"{event['rawPath']}?{event['rawQueryString']}"
    ours = http_event(Request("GET", target, tuple(event["headers"].items()), b"", "192.0.2.1"))
    assert set(event) == set(ours)
    assert set(event["requestContext"]) == set(ours["requestContext"])
    assert event["queryStringParameters"] == ours["queryStringParameters"] == dict(parse_qsl(event["rawQueryString"]))
