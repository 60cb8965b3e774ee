"""The functions: code, layer, what calls them, sizes that fit together, logs; and the APIs before the resolver."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from coldstream.local.template import Template, TemplateFunction, load_template
from tests.support.cloudformation import EVERYTHING, TEMPLATE, Stack

ROOT = TEMPLATE.parent
UPKEEP = ("Retention", "Sweep", "Garbage", "Scrub", "Erase")
JOBS = ("JobRunner", "JobTick")
SCHEDULED = {"JobTickFunction", *(f"{name}Function" for name in UPKEEP)}


@pytest.fixture(scope="module")
def template() -> Template:
    return load_template(TEMPLATE)


def by_name(template: Template, name: str) -> TemplateFunction:
    return next(function for function in template.functions if function.name == name)


def test_every_function_has_its_handler_and_is_called_by_something(template: Template) -> None:
    assert {function.name for function in template.functions} == {
        "UploadFunction",
        "ResolverFunction",
        "ApiFunction",
        "JobRunnerFunction",
        "ConsoleFunction",
        *SCHEDULED,
    }
    for function in template.functions:
        module, _, name = function.handler.rpartition(".")
        code = ast.parse((function.code / f"{module}.py").read_text())
        assert name in {node.name for node in code.body if isinstance(node, ast.FunctionDef)}
        assert bool(function.queues or function.apis) == (function.name not in SCHEDULED)


def test_the_layer_is_built_by_its_makefile_and_run_from_its_sources(template: Template, stack: Stack) -> None:
    layer = stack.resources["Layer"]
    assert layer["Metadata"]["BuildMethod"] == "makefile"
    for function in template.functions:
        assert function.layers == (ROOT / layer["Properties"]["ContentUri"] / "python",)
        assert (function.layers[0] / "coldstream/__init__.py").is_file()


def test_functions_and_layer_are_of_one_runtime_and_architecture(stack: Stack) -> None:
    function, layer = stack.document["Globals"]["Function"], stack.properties("Layer")
    assert layer["CompatibleRuntimes"] == [function["Runtime"]]
    assert layer["CompatibleArchitectures"] == function["Architectures"]
    assert stack.resources["Layer"]["Metadata"]["BuildArchitecture"] == function["Architectures"][0]


def test_the_upload_queue_hides_a_message_six_times_as_long_as_the_function_may_take(
    template: Template, stack: Stack
) -> None:
    upload = by_name(template, "UploadFunction")
    assert upload.queues[0].queue_arn == {"Fn::GetAtt": ["UploadQueue", "Arn"]}
    queue = stack.properties("UploadQueue")
    assert queue["VisibilityTimeout"] >= 6 * upload.timeout_s
    assert queue["RedrivePolicy"]["maxReceiveCount"] >= 5, "fewer, and one that is throttled becomes a dead letter"
    assert queue["MessageRetentionPeriod"] > queue["RedrivePolicy"]["maxReceiveCount"] * queue["VisibilityTimeout"]


def test_a_message_fails_alone(template: Template) -> None:
    (source,) = by_name(template, "UploadFunction").queues
    assert source.reports_failures
    assert source.batch_size == 1


def test_uploads_leave_the_account_room_for_the_resolver(stack: Stack) -> None:
    (event,) = stack.properties("UploadFunction")["Events"].values()
    parameter = stack.document["Parameters"]["UploadConcurrency"]
    assert event["Properties"]["ScalingConfig"] == {"MaximumConcurrency": str(parameter["Default"])}
    assert 2 <= parameter["MinValue"] <= parameter["Default"] < 1000 <= parameter["MaxValue"]


@pytest.mark.parametrize("name", ["ResolverFunction", "ApiFunction"])
def test_what_is_behind_an_api_ends_before_that_gives_up(template: Template, name: str) -> None:
    assert by_name(template, name).timeout_s < 30


def test_jobs_and_streams_are_below_v1_of_the_resolvers_api(template: Template) -> None:
    resolver, api = by_name(template, "ResolverFunction"), by_name(template, "ApiFunction")
    assert (resolver.prefix, api.prefix) == ("", "/v1")
    assert resolver.apis == api.apis == ("ResolverApi",)


def test_every_function_has_a_log_of_its_own_that_ends_and_is_traced(stack: Stack) -> None:
    logs = set()
    for properties in stack.of_type("AWS::Serverless::Function").values():
        logs.add(properties["LoggingConfig"]["LogGroup"])
        assert {"Timeout", "MemorySize"} <= properties.keys()
    assert logs == {stack.ref(f"{name}Logs") for name in ("Upload", "Resolver", "ApiFunction", *JOBS, *UPKEEP)}
    assert stack.document["Globals"]["Function"]["Tracing"] == "Active"


@pytest.mark.parametrize("name", UPKEEP)
def test_the_upkeep_is_called_by_a_schedule_that_its_parameter_turns_on(name: str) -> None:
    states = {}
    for value in Stack().document["Parameters"][name]["AllowedValues"]:
        stack = Stack(**{name: value, "UpkeepHours": "6"})
        (event,) = stack.properties(f"{name}Function")["Events"].values()
        assert event["Type"] == "ScheduleV2"
        schedule = event["Properties"]
        assert schedule["ScheduleExpression"] == "rate(6 hours)"
        assert schedule["RoleArn"] == stack.arn("ScheduleRole")
        states[value] = schedule["State"]
    assert states.pop("off") == "DISABLED"
    assert set(states.values()) == {"ENABLED"}


def test_nothing_is_deleted_until_a_parameter_says_so(stack: Stack) -> None:
    defaults = {name: stack.document["Parameters"][name]["Default"] for name in UPKEEP}
    assert defaults == {"Retention": "report", "Sweep": "off", "Garbage": "report", "Scrub": "on", "Erase": "off"}
    for name in ("Retention", "Garbage"):
        variables = Stack(**{name: "delete"}).properties(f"{name}Function")["Environment"]["Variables"]
        assert variables[f"COLDSTREAM_{name.upper()}"] == "delete"


@pytest.mark.parametrize("name", UPKEEP)
def test_what_a_run_leaves_is_for_the_next_run_and_not_for_a_retry(name: str, stack: Stack) -> None:
    function = stack.properties(f"{name}Function")
    assert function["EventInvokeConfig"]["MaximumRetryAttempts"] == 0
    assert function["Timeout"] == 900


def test_every_log_is_kept_for_as_long_as_the_operator_says() -> None:
    stack = Stack(**{**EVERYTHING, "LogRetentionDays": "90"})
    groups = stack.of_type("AWS::Logs::LogGroup")
    names = ("Upload", "Resolver", "ApiFunction", "Api", "Spark", *JOBS, *UPKEEP)
    assert set(groups) == {f"{name}Logs" for name in names}
    assert {properties["RetentionInDays"] for properties in groups.values()} == {"90"}


def test_every_log_is_encrypted_by_the_customers_key_where_there_is_one(stack: Stack, whole: Stack) -> None:
    assert not any("KmsKeyId" in properties for properties in stack.of_type("AWS::Logs::LogGroup").values())
    keys = {properties.get("KmsKeyId") for properties in whole.of_type("AWS::Logs::LogGroup").values()}
    assert keys == {EVERYTHING["KmsKeyArn"]}


def apis(stack: Stack) -> dict[str, dict[str, Any]]:
    return stack.of_type("AWS::Serverless::HttpApi")


def test_the_api_wants_iam_and_there_is_no_other_without_an_issuer(stack: Stack) -> None:
    assert set(apis(stack)) == {"ResolverApi"}
    assert stack.properties("ResolverApi")["Auth"] == {"EnableIamAuthorizer": True, "DefaultAuthorizer": "AWS_IAM"}
    assert not {"ResolverJwtPermission", "ApiJwtPermission"} & stack.resources.keys()


def test_with_an_issuer_a_second_api_takes_its_tokens_and_the_first_is_as_it_was(stack: Stack, whole: Stack) -> None:
    assert set(apis(whole)) == {"ResolverApi", "ResolverJwtApi"}
    assert whole.properties("ResolverApi") == stack.properties("ResolverApi")
    auth = whole.properties("ResolverJwtApi")["Auth"]
    token = auth["Authorizers"][auth["DefaultAuthorizer"]]
    assert token["JwtConfiguration"] == {"issuer": EVERYTHING["JwtIssuer"], "audience": [EVERYTHING["JwtAudience"]]}
    assert token["IdentitySource"] == "$request.header.Authorization"


def test_tokens_without_an_audience_are_refused(stack: Stack) -> None:
    (rule,) = stack.document["Rules"].values()
    assert rule["RuleCondition"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "JwtIssuer"}, ""]}]}
    assert rule["Assertions"][0]["Assert"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "JwtAudience"}, ""]}]}


@pytest.mark.parametrize(
    ("path", "function", "permission"),
    [
        ("$default", "ResolverFunction", "ResolverJwtPermission"),
        ("/v1/{proxy+}", "ApiFunction", "ApiJwtPermission"),
    ],
)
def test_the_second_api_has_the_routes_of_the_first_and_may_call_their_functions(
    whole: Stack, path: str, function: str, permission: str
) -> None:
    paths = whole.properties("ResolverJwtApi")["DefinitionBody"]["paths"]
    assert set(paths) == {"$default", "/v1/{proxy+}"}
    integration = paths[path]["x-amazon-apigateway-any-method"]["x-amazon-apigateway-integration"]
    assert integration["uri"].endswith(f"/functions/{whole.arn(function)}/invocations")
    assert integration["payloadFormatVersion"] == "2.0"
    properties = whole.properties(permission)
    assert properties["FunctionName"] == whole.ref(function)
    assert properties["SourceArn"].endswith(f":{whole.ref('ResolverJwtApi')}/*")


def test_every_api_is_throttled_and_logged() -> None:
    stack = Stack(**{**EVERYTHING, "ApiRateLimit": "7"})
    for properties in apis(stack).values():
        assert properties["DefaultRouteSettings"] == {"ThrottlingRateLimit": "7", "ThrottlingBurstLimit": "7"}
        assert properties["AccessLogSettings"]["DestinationArn"] == stack.arn("ApiLogs")
        line = json.loads(properties["AccessLogSettings"]["Format"])
        assert {"requestId", "ip", "user", "path", "status"} <= line.keys()
        assert all(value.startswith("$context.") for value in line.values())


def test_jobs_run_when_their_parameter_says_so_and_the_tick_comes_each_minute(template: Template) -> None:
    states = {}
    for value in Stack().document["Parameters"]["Jobs"]["AllowedValues"]:
        stack = Stack(Jobs=value, JobConcurrency="7")
        (event,) = stack.properties("JobTickFunction")["Events"].values()
        (source,) = stack.properties("JobRunnerFunction")["Events"].values()
        assert event["Properties"]["RoleArn"] == stack.arn("ScheduleRole")
        assert source["Properties"]["ScalingConfig"] == {"MaximumConcurrency": "7"}
        variables = stack.properties("JobRunnerFunction")["Environment"]["Variables"]
        queue = variables["COLDSTREAM_JOBS_QUEUE"]
        states[value] = (event["Properties"]["State"], source["Properties"]["Enabled"], bool(queue))
    assert states == {"off": ("DISABLED", False, False), "on": ("ENABLED", True, True)}
    assert Stack().parameters["Jobs"] == "off"
    schedule = by_name(template, "JobTickFunction").schedule
    assert schedule is not None
    assert schedule.every_s == 60
    assert by_name(template, "JobTickFunction").timeout_s < 60
    assert [one.name for one in template.functions if one.schedule is not None] == ["JobTickFunction"]


def test_the_queue_of_jobs_hides_a_message_six_times_as_long_as_a_slice_and_a_job_fails_alone(
    template: Template, stack: Stack
) -> None:
    runner = by_name(template, "JobRunnerFunction")
    (source,) = runner.queues
    assert (source.batch_size, source.reports_failures) == (1, True)
    queue = stack.properties("JobsQueue")
    assert queue["VisibilityTimeout"] >= 6 * runner.timeout_s
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == stack.arn("JobsDeadLetterQueue")
    assert queue["MessageRetentionPeriod"] > queue["RedrivePolicy"]["maxReceiveCount"] * queue["VisibilityTimeout"]
    allowed = stack.properties("JobsDeadLetterQueue")["RedriveAllowPolicy"]
    assert allowed == {"redrivePermission": "byQueue", "sourceQueueArns": [stack.arn("JobsQueue")]}


def test_the_tick_knows_emr_where_there_is_one(stack: Stack, whole: Stack) -> None:
    names = ("COLDSTREAM_EMR_APPLICATION", "COLDSTREAM_EMR_ROLE", "COLDSTREAM_EMR_SCRIPTS")
    variables = stack.properties("JobTickFunction")["Environment"]["Variables"]
    assert {variables[name] for name in names} == {""}
    variables = whole.properties("JobTickFunction")["Environment"]["Variables"]
    assert [variables[name] for name in names] == [
        whole.ref("SparkApplication"),
        whole.arn("SparkJobRole"),
        whole.outputs["SparkFiles"],
    ]
