from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.local.template import ScheduleSource, find_template, load_document, load_template

MINIMAL = """
Globals:
  Function:
    Timeout: 7
    Environment:
      Variables: { SHARED: global, BUCKET: !Ref Bucket }
Resources:
  Bucket:
    Type: AWS::S3::Bucket
  Layer:
    Type: AWS::Serverless::LayerVersion
    Properties: { ContentUri: layer }
  One:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: one
      Handler: app.handler
      Layers: [!Ref Layer, "arn:aws:lambda:eu-central-1:1:layer:theirs:1"]
      Environment:
        Variables: { SHARED: own, PREFIX: !Sub "${Bucket}/x" }
      Events:
        Messages:
          Type: SQS
          Properties: { Queue: !GetAtt Queue.Arn, FunctionResponseTypes: [ReportBatchItemFailures] }
        Nightly:
          Type: Schedule
          Properties: { Schedule: rate(1 day) }
  Queue:
    Type: AWS::SQS::Queue
  Alarms:
    Type: AWS::SNS::Topic
Outputs:
  Name:
    Value: !Ref Bucket
  Function:
    Value: !GetAtt One.Arn
  Alarms:
    Value: !Ref Alarms
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "template.yaml"
    path.write_text(text)
    return path


def test_a_function_has_its_own_properties_over_the_global_ones(tmp_path: Path) -> None:
    (function,) = load_template(written(tmp_path, MINIMAL)).functions
    assert (function.timeout_s, function.memory_mb) == (7, 128)
    assert function.code == tmp_path / "one"
    assert function.environment == {
        "SHARED": "own",
        "BUCKET": {"Ref": "Bucket"},
        "PREFIX": {"Fn::Sub": "${Bucket}/x"},
    }


def test_layers_of_the_template_are_directories_and_those_of_others_are_left_out(tmp_path: Path) -> None:
    (function,) = load_template(written(tmp_path, MINIMAL)).functions
    assert function.layers == (tmp_path / "layer",)


def test_a_queue_has_lambdas_default_batch_size_and_other_sources_are_left_out(tmp_path: Path) -> None:
    (function,) = load_template(written(tmp_path, MINIMAL)).functions
    (queue,) = function.queues
    assert (queue.queue_arn, queue.batch_size) == ({"Fn::GetAtt": ["Queue", "Arn"]}, 10)
    assert queue.reports_failures
    assert function.apis == ()


def test_a_layer_that_has_its_packages_in_python_as_lambda_wants_them_is_taken_from_there(tmp_path: Path) -> None:
    (tmp_path / "layer/python").mkdir(parents=True)
    (function,) = load_template(written(tmp_path, MINIMAL)).functions
    assert function.layers == (tmp_path / "layer/python",)


def test_what_is_left_for_cloudformation_has_nothing_of_sams_and_nothing_that_a_laptop_does_without(
    tmp_path: Path,
) -> None:
    template = load_template(written(tmp_path, MINIMAL))
    assert set(template.body["Resources"]) == {"Bucket", "Queue"}
    assert set(template.outputs) == {"Name"}
    assert template.api_outputs == {}


@pytest.mark.parametrize(
    ("part", "needy"),
    [
        ("SHARED: own", "One"),
        ("Type: AWS::SQS::Queue", "Queue"),
    ],
)
def test_what_a_function_or_a_queue_cannot_do_without_is_not_left_out_silently(
    tmp_path: Path, part: str, needy: str
) -> None:
    needing = {"One": "SHARED: !Ref Alarms", "Queue": f"{part}\n    Properties: {{ KmsMasterKeyId: !Ref Alarms }}"}
    with pytest.raises(InvalidSettingError, match=f"{needy} needs Alarms, and a laptop runs no AWS::SNS::Topic"):
        load_template(written(tmp_path, MINIMAL.replace(part, needing[needy])))


def test_of_two_apis_the_outputs_of_the_one_that_is_served_are_known(tmp_path: Path) -> None:
    text = """
Resources:
  Served: { Type: AWS::Serverless::HttpApi }
  Other: { Type: AWS::Serverless::HttpApi }
  One:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: one
      Handler: app.handler
      Events: { Http: { Type: HttpApi, Properties: { ApiId: !Ref Served } } }
Outputs:
  Url: { Value: !Sub "https://${Served}.example" }
  OtherUrl: { Value: !Sub "https://${Other}.example" }
"""
    template = load_template(written(tmp_path, text))
    assert set(template.outputs) == {"Url"}
    assert template.api_outputs == {"Url": "Served"}


@pytest.mark.parametrize("text", ["", "- a list", "Resources: {A: {}}", "Resources: [", "Resources: {A: 1}"])
def test_what_is_no_template_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"template.yaml cannot be read"):
        load_template(written(tmp_path, text))


ROUTES = """
Resources:
  One:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: one
      Handler: app.handler
      Events: { Http: { Type: HttpApi, Properties: { ONE } } }
  Two:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: two
      Handler: app.handler
      Events: { Http: { Type: HttpApi, Properties: { TWO } } }
"""


def test_the_default_route_is_one_functions_and_a_prefix_anothers(tmp_path: Path) -> None:
    text = ROUTES.replace("ONE", 'Path: "/v1/{proxy+}", Method: ANY').replace("TWO", "")
    one, two = load_template(written(tmp_path, text)).functions
    assert (one.prefix, two.prefix) == ("/v1", "")
    assert one.apis == two.apis == ("ServerlessHttpApi",)


@pytest.mark.parametrize("route", ["", 'Path: "/v1/{proxy+}", Method: ANY'])
def test_two_functions_of_one_route_are_refused(tmp_path: Path, route: str) -> None:
    with pytest.raises(InvalidSettingError, match="the same route"):
        load_template(written(tmp_path, ROUTES.replace("ONE", route).replace("TWO", route)))


@pytest.mark.parametrize(
    "route",
    [
        "Path: /x, Method: ANY",
        'Path: "/x/{proxy+}", Method: get',
        'Path: "/x/{id}", Method: ANY',
        'Path: "/x/{proxy+}"',
    ],
)
def test_a_route_that_does_not_run_locally_is_refused(tmp_path: Path, route: str) -> None:
    with pytest.raises(InvalidSettingError, match="One has a route that does not run locally"):
        load_template(written(tmp_path, ROUTES.replace("ONE", route).replace("TWO", "")))


def test_the_template_of_the_current_directory_comes_before_that_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkout = Path(__file__).parents[2] / "template.yaml"
    assert find_template() == checkout
    assert find_template(written(tmp_path, MINIMAL)) == find_template() == tmp_path / "template.yaml"


def test_a_template_that_is_not_there_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"there is no .*absent\.yaml; name the template with --template"):
        find_template(tmp_path / "absent.yaml")


def test_a_rule_of_the_default_bus_is_passed_over_with_what_only_it_needs(tmp_path: Path) -> None:
    rule = """
  OfAws:
    Type: AWS::Events::Rule
    Properties: { EventPattern: { source: [aws.ec2] }, Targets: [{ Id: Alarms, Arn: !Ref Alarms }] }
"""
    path = written(tmp_path, MINIMAL.replace("\nResources:", f"\nResources:{rule.rstrip()}"))
    assert "OfAws" in load_document(path)["Resources"]
    assert "OfAws" not in load_template(path).body["Resources"]


@pytest.mark.parametrize(
    ("expression", "every_s"), [("rate(1 minute)", 60), ("rate(15 minutes)", 900), ("rate(2 hours)", None)]
)
def test_a_schedule_of_minutes_is_run_and_one_of_hours_is_not(
    tmp_path: Path, expression: str, every_s: int | None
) -> None:
    event = f"Properties: {{ ScheduleExpression: {expression}, State: DISABLED }}"
    text = MINIMAL.replace("Type: Schedule\n", "Type: ScheduleV2\n")
    text = text.replace("Properties: { Schedule: rate(1 day) }", event)
    (function,) = load_template(written(tmp_path, text)).functions
    assert function.schedule == (None if every_s is None else ScheduleSource(every_s, "DISABLED"))


def test_variables_that_speak_of_something_optional_that_does_not_run_here_are_left_out(tmp_path: Path) -> None:
    text = MINIMAL.replace("Type: AWS::SNS::Topic", "Type: AWS::SNS::Topic\n    Condition: HasTopic")
    text = text.replace("SHARED: own,", 'SHARED: own, TOPIC: !If [HasTopic, !Ref Alarms, ""],')
    (function,) = load_template(written(tmp_path, text)).functions
    assert function.environment.keys() == {"SHARED", "BUCKET", "PREFIX"}


def test_a_queue_says_whether_it_is_polled(tmp_path: Path) -> None:
    text = MINIMAL.replace("!GetAtt Queue.Arn,", "!GetAtt Queue.Arn, Enabled: !If [HasJobs, true, false],")
    for one, expected in ((MINIMAL, True), (text, {"Fn::If": ["HasJobs", True, False]})):
        (function,) = load_template(written(tmp_path, one)).functions
        (queue,) = function.queues
        assert queue.is_enabled == expected
