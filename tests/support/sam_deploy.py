"""`sam deploy` of template.yaml to LocalStack: all that its open edition has.

What is left out of the template is named here. Whatever refers to it is given the made-up name of `Stack` instead.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3

from tests.support.cloudformation import ACCOUNT, PSEUDO, REGION, Stack
from tests.support.sam import SAM
from tests.support.server import ROOT

LEFT_OUT = frozenset(
    {
        "AWS::DynamoDB::Table",  # its DynamoDB wants a download; the table is on DynamoDB Local
        "AWS::Lambda::Permission",  # of the functions
        "AWS::Serverless::Function",  # its Lambda wants Python 3.13 and containers
        "AWS::Serverless::HttpApi",  # not in the open edition
    }
)
IGNORED = frozenset({"AWS::CloudWatch::Dashboard"})
"""Types that it says it has created, and has not."""

STACK_NAME = PSEUDO["AWS::StackName"]
ARTIFACTS = "artifacts"
LOCALSTACK_ACCOUNT = "000000000000"
TIMEOUT_S = 180

_VARIABLE = re.compile(r"\$\{([A-Za-z0-9]+)(\.[A-Za-z]+)?\}")


class Deployed:
    """A stack that was created from the template: names by logical name, and what it is to have."""

    def __init__(self, template: Stack) -> None:
        self.template = template
        cloudformation = boto3.session.Session().client("cloudformation")
        created = cloudformation.describe_stack_resources(StackName=STACK_NAME)["StackResources"]
        self.statuses = {each["LogicalResourceId"]: each["ResourceStatus"] for each in created}
        self.types = {each["LogicalResourceId"]: each["ResourceType"] for each in created}
        self._ids = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in created}

    def id(self, name: str) -> str:
        """Return the physical id of a resource: a queue's URL, otherwise the name or ARN."""
        return self._ids[name]

    def name(self, name: str) -> str:
        """Return the name of a bucket, bus, rule, queue, topic or role."""
        return re.split(r"[/|:]", self._ids[name])[-1]

    def expected(self, name: str, *path: str) -> Any:
        """Return a property of the template, its names and ARNs those of what was created."""
        found = self.template.properties(name)
        for key in path:
            found = found[key]
        text = json.dumps(found).replace(ACCOUNT, LOCALSTACK_ACCOUNT)
        for logical in self._ids:
            text = re.sub(rf"\b{STACK_NAME}-{logical.lower()}\b", self.name(logical), text)
        return json.loads(text)


def sam_deploy(directory: Path, environment: Mapping[str, str]) -> Deployed:
    """Deploy the template as it is by default; takes about 12 s."""
    template = Stack()
    path = directory / "template.json"
    path.write_text(json.dumps(_deployable(template), default=str))
    location = {"LocationConstraint": REGION}
    boto3.session.Session().client("s3").create_bucket(Bucket=ARTIFACTS, CreateBucketConfiguration=location)
    command = [SAM, "deploy", "--template-file", path, "--stack-name", STACK_NAME, "--s3-bucket", ARTIFACTS]
    command += ["--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset", "--no-progressbar"]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**environment, "HOME": str(directory), "SAM_CLI_TELEMETRY": "0"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Deployed(template)


def _deployable(template: Stack) -> dict[str, Any]:
    document = template.document
    gone = {name for name, resource in document["Resources"].items() if resource["Type"] in LEFT_OUT}
    kept = {name: resource for name, resource in document["Resources"].items() if name not in gone}
    for resource in kept.values():
        if "ContentUri" in resource.get("Properties", {}):
            resource["Properties"]["ContentUri"] = str(ROOT / resource["Properties"]["ContentUri"])
    found: dict[str, Any] = _without(gone, {**document, "Resources": kept})
    return found


def _without(gone: set[str], value: Any) -> Any:
    """Put made-up names in the place of references to what is gone."""

    def made_up(match: re.Match[str]) -> str:
        return _made_up(match[1], is_arn=match[2] == ".Arn") if match[1] in gone else match[0]

    match value:
        case {"Ref": str(name)} if name in gone:
            return _made_up(name)
        case {"Fn::GetAtt": [str(name), str(attribute)]} if name in gone:
            return _made_up(name, is_arn=attribute == "Arn")
        case {"Fn::Sub": str(text) | [str(text), *_] as whole}:
            kept = _VARIABLE.sub(made_up, text)
            return {"Fn::Sub": kept if whole == text else [kept, *_without(gone, whole[1:])]}
        case dict():
            return {key: _without(gone, each) for key, each in value.items()}
        case list():
            return [_without(gone, each) for each in value]
    return value


def _made_up(name: str, *, is_arn: bool = False) -> str:
    made_up = f"{STACK_NAME}-{name.lower()}"
    return f"arn:aws:made-up:{REGION}:{ACCOUNT}:{made_up}" if is_arn else made_up
