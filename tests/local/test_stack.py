from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.local.environment import aws_environment, client
from coldstream.local.function_protocol import InvocationReport
from coldstream.local.stack import EmulatedStack

TEMPLATE = """
Transform: AWS::Serverless-2016-10-31
Parameters:
  Greeting: { Type: String, Default: hello }
Resources:
  Bucket: { Type: AWS::S3::Bucket, DeletionPolicy: Retain, UpdateReplacePolicy: Retain }
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{ AttributeName: stream, AttributeType: S }]
      KeySchema: [{ AttributeName: stream, KeyType: HASH }]
  EventBus: { Type: AWS::Events::EventBus, Properties: { Name: !Ref AWS::StackName } }
  Rule:
    Type: AWS::Events::Rule
    Properties:
      EventBusName: !GetAtt EventBus.Name
      State: ENABLED
      EventPattern: { source: [tests] }
      Targets: [{ Id: Queue, Arn: !GetAtt Queue.Arn }]
  Queue:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: 60
      RedrivePolicy: { deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 2 }
  Dead: { Type: AWS::SQS::Queue }
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: worker
      Handler: app.handler
      Environment: { Variables: { COLDSTREAM_BUCKET: !Ref Bucket } }
      Events:
        Messages:
          Type: SQS
          Properties: { Queue: !GetAtt Queue.Arn, FunctionResponseTypes: [ReportBatchItemFailures] }
  Api: { Type: AWS::Serverless::HttpApi }
  Server:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: server
      Handler: app.handler
      Timeout: 9
      Environment: { Variables: { WORDS: !Sub "${Greeting}, ${Bucket}" } }
      Events: { Http: { Type: HttpApi, Properties: { ApiId: !Ref Api } } }
  Other:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: other
      Handler: app.handler
      Events: { Http: { Type: HttpApi, Properties: { ApiId: !Ref Api, Path: "/v1/{proxy+}", Method: ANY } } }
Outputs:
  Bucket: { Value: !Ref Bucket }
  Table: { Value: !Ref Table }
  EventBus: { Value: !GetAtt EventBus.Name }
  ResolverUrl: { Value: !Sub "https://${Api}.execute-api.${AWS::Region}.${AWS::URLSuffix}" }
"""
WORKER = """
import json, os, time

def handler(event, context):
    failed = []
    for record in event["Records"]:
        detail = json.loads(record["body"])["detail"]
        while not os.path.exists(detail.get("until", "/")):
            time.sleep(0.01)
        if "raise" in detail:
            raise ValueError("as asked")
        if "fail" in detail:
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}
"""
SERVER = """
import json, os

def handler(event, context):
    told = {"path": event["rawPath"], "environment": dict(os.environ), "left": context.get_remaining_time_in_millis()}
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(told)}
"""
OTHER = """
import os

def handler(event, context):
    if event["rawPath"] == "/v1/die":
        os._exit(1)
    return {"statusCode": 200, "body": os.environ["COLDSTREAM_LOCAL"] + " " + event["rawPath"]}
"""


def write_project(directory: Path, *, worker: str = WORKER) -> Path:
    """Write a template and its functions."""
    for name, code in (("worker", worker), ("server", SERVER), ("other", OTHER)):
        (directory / name).mkdir()
        (directory / name / "app.py").write_text(code)
    path = directory / "template.yaml"
    path.write_text(TEMPLATE)
    return path


class Running:
    """A stack, and what its functions have handled."""

    def __init__(self, template: Path, inherited: Mapping[str, str]) -> None:
        self.handled: list[InvocationReport] = []
        self.stack = EmulatedStack(
            template=template, parameters={"Greeting": "hey"}, on_invocation=self.handled.append, inherited=inherited
        )

    def put(self, **detail: Any) -> None:
        entry = {"Source": "tests", "DetailType": "Test", "Detail": json.dumps(detail)}
        events = client("events", self.stack.environment)
        answer = events.put_events(Entries=[{**entry, "EventBusName": self.stack.environment["COLDSTREAM_EVENT_BUS"]}])
        assert answer["FailedEntryCount"] == 0

    def wait_handled(self, number: int) -> None:
        """Wait until that many events were reported, which they are after they left the queue."""
        deadline = time.monotonic() + 10
        while len(self.handled) < number:
            assert time.monotonic() < deadline, self.handled
            time.sleep(0.01)

    def details(self, *, failed: bool) -> list[Any]:
        return [json.loads(each.event)["detail"] for each in self.handled if (each.error is not None) == failed]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.stack.resolver_url}{path}", timeout=10) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    template = write_project(tmp_path_factory.mktemp("project"))
    inherited = {"AWS_PROFILE": "real", "AWS_SECRET_ACCESS_KEY": "real", "COLDSTREAM_TABLE": "real"}
    running = Running(template, inherited)
    with running.stack:
        yield running


@pytest.fixture(autouse=True)
def _nothing_handled(request: pytest.FixtureRequest) -> None:
    if "running" in request.fixturenames:
        request.getfixturevalue("running").handled.clear()


def test_an_event_on_the_bus_reaches_the_function(running: Running) -> None:
    running.put(number=1)
    running.stack.wait_idle(20)
    running.wait_handled(1)
    assert running.details(failed=False) == [{"number": 1}]
    assert {each.function for each in running.handled} == {"Worker"}


def test_a_message_that_fails_again_and_again_ends_in_the_dead_letter_queue_and_others_go_on(running: Running) -> None:
    before = running.stack.dead_letters()
    running.put(fail=1)
    running.put(number=2)
    running.stack.wait_idle(20)
    running.wait_handled(3)
    assert running.details(failed=True) == [{"fail": 1}, {"fail": 1}]
    assert running.details(failed=False) == [{"number": 2}]
    assert running.stack.dead_letters() == before + 1


def test_a_handler_that_raises_ends_in_the_dead_letter_queue_too(running: Running) -> None:
    before = running.stack.dead_letters()
    running.put(**{"raise": 1})
    running.stack.wait_idle(20)
    running.wait_handled(2)
    assert {each.error for each in running.handled} == {"ValueError: as asked"}
    assert running.stack.dead_letters() == before + 1


def test_waiting_too_long_is_an_error(running: Running, tmp_path: Path) -> None:
    running.put(until=str(tmp_path / "go"))
    with pytest.raises(UnavailableError, match="still has messages to handle after 0 s"):
        running.stack.wait_idle(0)
    (tmp_path / "go").touch()
    running.stack.wait_idle(20)


def test_the_http_api_calls_its_function_with_the_templates_variables_resolved(running: Running) -> None:
    told = running.get("/some%20path")
    assert told["path"] == "/some path"
    assert told["environment"]["WORDS"] == f"hey, {running.stack.environment['COLDSTREAM_BUCKET']}"
    assert 8_000 < told["left"] <= 9_000
    running.wait_handled(1)
    assert running.handled[0].event == "GET /some%20path 200"


def test_a_route_below_a_prefix_calls_its_own_function_which_alone_is_reported(running: Running) -> None:
    with urllib.request.urlopen(f"{running.stack.resolver_url}/v1/jobs", timeout=10) as response:
        assert response.read() == b"true /v1/jobs"
    running.wait_handled(1)
    assert [(each.function, each.event) for each in running.handled] == [("Other", "GET /v1/jobs 200")]


def test_a_function_below_a_prefix_that_died_is_found_again_at_its_address(running: Running) -> None:
    before = running.stack.process_id("Other")
    with pytest.raises(urllib.error.HTTPError, match="500"):
        urllib.request.urlopen(f"{running.stack.resolver_url}/v1/die", timeout=10)
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{running.stack.resolver_url}/v1/x", timeout=10) as response:
                assert response.read() == b"true /v1/x"
            break
        except urllib.error.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert running.stack.process_id("Other") != before
    assert running.stack.check() == ("Other",)


def test_a_function_has_the_variables_of_the_template_and_none_of_ours(running: Running) -> None:
    environment = running.get("/")["environment"]
    assert "real" not in environment.values()
    assert "COLDSTREAM_BUCKET" not in environment
    assert environment["AWS_ENDPOINT_URL"] == running.stack.environment["AWS_ENDPOINT_URL"]


def test_this_process_keeps_its_environment(running: Running) -> None:
    assert os.environ.get("COLDSTREAM_RESOLVER_URL") != running.stack.resolver_url
    assert running.stack.functions == ("Worker", "Server", "Other")


def test_stopping_leaves_no_thread_and_no_port(tmp_path: Path) -> None:
    threads = threading.active_count()
    with Running(write_project(tmp_path), {}).stack as stack:
        urls = [stack.environment["AWS_ENDPOINT_URL"], stack.resolver_url]
        stack.check()
    assert threading.active_count() == threads
    for url in urls:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0


def test_a_function_that_cannot_be_imported_is_reported_and_everything_is_ended(tmp_path: Path) -> None:
    threads = threading.active_count()
    template = write_project(tmp_path, worker="import no_such_module")
    with pytest.raises(UnavailableError, match="Worker: ModuleNotFoundError: No module named 'no_such_module'"):
        Running(template, {}).stack.__enter__()
    assert threading.active_count() == threads


def test_a_function_that_died_is_started_again_and_its_message_comes_back(tmp_path: Path) -> None:
    marker = tmp_path / "died"
    code = WORKER.replace(
        "    failed = []", f"    if not os.path.exists({str(marker)!r}):\n        kill()\n    failed = []"
    )
    code += f"def kill():\n    open({str(marker)!r}, 'w').close()\n    os._exit(1)\n"
    running = Running(write_project(tmp_path, worker=code), {})
    with running.stack as stack:
        first = stack.process_id("Worker")
        running.put(number=1)
        stack.wait_idle(20)
        running.wait_handled(1)
        assert running.details(failed=False) == [{"number": 1}]
        assert marker.exists()
        assert stack.process_id("Worker") != first
        assert stack.check() == ("Worker",)
        assert stack.check() == ()


class Deaths(deque[str]):
    """Those of functions; another one comes as soon as one was looked at."""

    late: str | None = "Server"

    def __iter__(self) -> Iterator[str]:
        yield from list(super().__iter__())
        self._come()

    def popleft(self) -> str:
        taken = super().popleft()
        self._come()
        return taken

    def _come(self) -> None:
        if self.late is not None:
            self.append(self.late)
            self.late = None


def test_a_death_that_comes_while_they_are_asked_for_is_told() -> None:
    stack = EmulatedStack(inherited={})
    stack._died = Deaths(["Worker"])
    assert [*stack.check(), *stack.check()] == ["Worker", "Server"]


def test_an_http_function_that_was_killed_is_back_at_the_same_place(running: Running) -> None:
    killed = running.stack.process_id("Server")
    os.kill(killed, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while running.stack.process_id("Server") == killed:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.stack._functions["Server"].ready()
    assert running.get("/again")["path"] == "/again"


def test_an_emulated_aws_that_died_is_the_end(tmp_path: Path) -> None:
    with Running(write_project(tmp_path), {}).stack as stack:
        assert stack._emulator is not None
        os.kill(stack._emulator.process_id, signal.SIGKILL)
        stack._emulator.stop()
        with pytest.raises(UnavailableError, match="the emulated AWS of the local stack died"):
            stack.check()


def test_a_parameter_that_the_template_does_not_have_is_refused(tmp_path: Path) -> None:
    template = write_project(tmp_path)
    with pytest.raises(InvalidSettingError, match="the template has no Farewell"):
        EmulatedStack(template=template, parameters={"Farewell": "bye"}, inherited={})


def test_a_template_that_the_emulator_cannot_make_is_reported_and_everything_is_ended(tmp_path: Path) -> None:
    threads = threading.active_count()
    template = write_project(tmp_path)
    template.write_text(template.read_text().replace("!Ref Bucket", "!Ref Bucked"))
    with pytest.raises(UnavailableError, match="could not create the resources of the template"):
        Running(template, {}).stack.__enter__()
    assert threading.active_count() == threads


def test_an_endpoint_of_the_callers_is_used_and_left_as_it_was(tmp_path: Path, moto_endpoint: str) -> None:
    inherited = {"AWS_ENDPOINT_URL": moto_endpoint}
    running = Running(write_project(tmp_path), inherited)
    with running.stack as stack:
        assert stack.environment["AWS_ENDPOINT_URL"] == moto_endpoint
        s3 = client("s3", stack.environment)
        s3.put_object(Bucket=stack.environment["COLDSTREAM_BUCKET"], Key="left/behind", Body=b"")
        running.put(number=1)
        stack.wait_idle(20)
        running.wait_handled(1)
        assert running.details(failed=False) == [{"number": 1}]
        environment = dict(stack.environment)
    assert not is_there(environment)


def test_an_interrupt_while_resources_are_made_leaves_none_of_them(
    tmp_path: Path, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coldstream.local.deployment._resolve", interrupt)
    inherited = {"AWS_ENDPOINT_URL": moto_endpoint, "AWS_ENDPOINT_URL_DYNAMODB": moto_endpoint}
    s3, dynamodb = (client(service, aws_environment(inherited, moto_endpoint)) for service in ("s3", "dynamodb"))
    before = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]], dynamodb.list_tables()["TableNames"]
    with pytest.raises(KeyboardInterrupt):
        Running(write_project(tmp_path), inherited).stack.__enter__()
    assert ([bucket["Name"] for bucket in s3.list_buckets()["Buckets"]], dynamodb.list_tables()["TableNames"]) == before


def test_a_table_and_a_bucket_elsewhere_are_created_there_and_deleted(tmp_path: Path, moto_endpoint: str) -> None:
    inherited = {"AWS_ENDPOINT_URL_DYNAMODB": moto_endpoint, "AWS_ENDPOINT_URL_S3": moto_endpoint}
    running = Running(write_project(tmp_path), inherited)
    with running.stack as stack:
        assert stack.environment["AWS_ENDPOINT_URL"] != moto_endpoint
        assert is_there({**stack.environment, "AWS_ENDPOINT_URL": moto_endpoint})
        assert running.get("/")["environment"]["WORDS"] == f"hey, {stack.environment['COLDSTREAM_BUCKET']}"
        environment = dict(stack.environment)
    assert not is_there(environment)


def is_there(environment: Mapping[str, str]) -> bool:
    """Tell whether bucket and table are there; not half of them."""
    buckets = client("s3", environment).list_buckets()["Buckets"]
    has_bucket = environment["COLDSTREAM_BUCKET"] in {bucket["Name"] for bucket in buckets}
    try:
        client("dynamodb", environment).describe_table(TableName=environment["COLDSTREAM_TABLE"])
        has_table = True
    except ClientError:
        has_table = False
    assert has_bucket == has_table
    return has_bucket
