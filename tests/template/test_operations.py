"""docs/operations.md has a section for each alarm, and docs/deploy.md policies that let the stack do its work."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from coldstream.operate.alarm_commands import ALARM_COMMANDS
from tests.support.cloudformation import ACCOUNT, EVERYTHING, REGION, TEMPLATE, Stack
from tests.support.iam import Request, is_allowed

OPERATIONS = (TEMPLATE.parent / "docs/operations.md").read_text(encoding="utf-8")
DEPLOY = (TEMPLATE.parent / "docs/deploy.md").read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    """Return the section about each alarm, by its name."""
    (alarms,) = re.findall(r"^## Alarms\n(.*?)^## ", OPERATIONS, re.MULTILINE | re.DOTALL)
    parts = re.split(r"^### (\w+)\n", alarms, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_alarm_has_its_section_and_every_section_its_alarm(whole: Stack) -> None:
    alarms = {*whole.of_type("AWS::CloudWatch::Alarm"), "SparkFailuresRule"}
    assert sections().keys() == alarms


def test_a_section_says_what_happened_and_what_to_do() -> None:
    for name, text in sections().items():
        assert re.match(r"\n\*\*[A-Z][^*]*[.,]\*\* ?", text), f"{name} does not begin with what it means"
        assert len(text) > 100, name


def test_every_alarm_has_a_command_and_every_command_an_alarm(whole: Stack) -> None:
    assert ALARM_COMMANDS.keys() == whole.of_type("AWS::CloudWatch::Alarm").keys()


def test_every_alarm_names_the_page(whole: Stack) -> None:
    for name, alarm in whole.of_type("AWS::CloudWatch::Alarm").items():
        assert alarm["AlarmDescription"].endswith(". See docs/operations.md"), name
    (target,) = whole.properties("SparkFailuresRule")["Targets"]
    assert "See docs/operations.md" in target["InputTransformer"]["InputTemplate"]


def test_sections_speak_of_parameters_outputs_and_alarms_that_there_are(whole: Stack) -> None:
    document = whole.document
    known = {*document["Parameters"], *document["Outputs"], *document["Resources"]}
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", OPERATIONS)) | set(
        re.findall(r"\$\(output (\w+)\)", OPERATIONS)
    )
    assert named <= known


def policy(sid: str) -> list[dict[str, Any]]:
    """Return the statements of the policy in docs/deploy.md that has a statement with this name."""
    for text in re.findall(r'^    (\{"Version".*?\]\})$', DEPLOY, re.MULTILINE | re.DOTALL):
        filled = text.replace("ACCOUNT", ACCOUNT).replace("REGION", REGION)
        statements: list[dict[str, Any]] = json.loads(filled)["Statement"]
        if sid in {statement["Sid"] for statement in statements}:
            return statements
    raise AssertionError(f"no policy has {sid}")


def of_service(statements: list[dict[str, Any]], service: str) -> list[dict[str, Any]]:
    return [statement for statement in statements if statement["Principal"].get("Service") == service]


def test_the_keys_policy_lets_the_logs_of_the_stack_be_encrypted_and_no_others(whole: Stack) -> None:
    granted = of_service(policy("Logs"), f"logs.{REGION}.amazonaws.com")
    for name in whole.of_type("AWS::Logs::LogGroup"):
        context = {"kms:EncryptionContext:aws:logs:arn": whole.arn(name).removesuffix(":*")}
        for action in ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey", "kms:ReEncryptTo"):
            assert is_allowed(granted, Request(action, EVERYTHING["KmsKeyArn"], context))
    theirs = {"kms:EncryptionContext:aws:logs:arn": f"arn:aws:logs:{REGION}:210987654321:log-group:theirs"}
    assert not is_allowed(granted, Request("kms:Decrypt", EVERYTHING["KmsKeyArn"], theirs))


@pytest.mark.parametrize("action", ["kms:Decrypt", "kms:GenerateDataKey"])
def test_the_keys_policy_lets_alarms_of_the_account_into_the_topic(action: str) -> None:
    granted = of_service(policy("Alarms"), "cloudwatch.amazonaws.com")
    assert is_allowed(granted, Request(action, EVERYTHING["KmsKeyArn"], {"aws:SourceAccount": ACCOUNT}))
    assert not is_allowed(granted, Request(action, EVERYTHING["KmsKeyArn"], {"aws:SourceAccount": "210987654321"}))


def test_s3_may_write_access_logs_where_the_archive_sends_them(whole: Stack) -> None:
    granted = of_service(policy("AccessLogs"), "logging.s3.amazonaws.com")
    prefix = whole.properties("Bucket")["LoggingConfiguration"]["LogFilePrefix"]
    line = Request("s3:PutObject", f"arn:aws:s3:::ACCESS-LOGS/{prefix}2026", {"aws:SourceAccount": ACCOUNT})
    assert is_allowed(granted, line)


def test_every_parameter_is_in_the_table() -> None:
    table = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", DEPLOY, re.MULTILINE))))
    assert Stack().document["Parameters"].keys() <= table
