"""What CloudFormation makes of template.yaml, for given parameters: its conditions and expressions resolved.

Names and ARNs are made up, in the form that AWS gives them, so that policies can be tried on them. What is not known
here is an error: a new function or attribute in the template has to be taught.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coldstream.local.template import load_document

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
REGION = "eu-central-1"
ACCOUNT = "123456789012"
PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::StackName": "coldstream",
    "AWS::URLSuffix": "amazonaws.com",
}
ARN_IS_THE_REF = {"AWS::IAM::ManagedPolicy", "AWS::SNS::Topic", "AWS::Serverless::LayerVersion"}
DELETING = {"Retention": "delete", "Sweep": "delete", "Garbage": "delete", "Erase": "on"}
"""Parameters that let the functions of the upkeep do what they only report, or leave, by default."""

EVERYTHING = {
    "Prefix": "an/archive/",
    "KmsKeyArn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0a1b",
    "AccessLogsBucket": "access-logs",
    "JwtIssuer": "https://issuer.example",
    "JwtAudience": "coldstream",
    "AlarmEmail": "somebody@example.com",
    **DELETING,
    "Jobs": "on",
    "WithSpark": "true",
    "SparkTablesBucket": "tables",
}
"""Parameters under which every resource is made, and everything may be done."""

_NOTHING = object()
_VARIABLE = re.compile(r"\$\{([A-Za-z0-9:.]+)\}")


def _arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


_ARNS: Mapping[str, Callable[[str], str]] = {
    "AWS::CloudWatch::Alarm": lambda name: _arn("cloudwatch", f"alarm:{name}"),
    "AWS::DynamoDB::Table": lambda name: _arn("dynamodb", f"table/{name}"),
    "AWS::EMRServerless::Application": lambda name: _arn("emr-serverless", f"/applications/{name}"),
    "AWS::Events::EventBus": lambda name: _arn("events", f"event-bus/{name}"),
    "AWS::Events::Rule": lambda name: _arn("events", f"rule/coldstream/{name}"),
    "AWS::IAM::ManagedPolicy": lambda name: f"arn:aws:iam::{ACCOUNT}:policy/{name}",
    "AWS::IAM::Role": lambda name: f"arn:aws:iam::{ACCOUNT}:role/{name}",
    "AWS::Logs::LogGroup": lambda name: _arn("logs", f"log-group:{name}:*"),
    "AWS::S3::Bucket": lambda name: f"arn:aws:s3:::{name}",
    "AWS::SNS::Topic": lambda name: _arn("sns", name),
    "AWS::SQS::Queue": lambda name: _arn("sqs", name),
    "AWS::Serverless::Function": lambda name: _arn("lambda", f"function:{name}"),
    "AWS::Serverless::LayerVersion": lambda name: _arn("lambda", f"layer:{name}:1"),
}
_NAMES = {
    "AWS::Events::EventBus": "Name",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::SQS::Queue": "QueueName",
}


class Stack:
    """The template's resources and outputs, for some parameters; those whose condition does not hold are not there."""

    def __init__(self, **parameters: str) -> None:
        self.document: dict[str, Any] = load_document(TEMPLATE)
        unknown = parameters.keys() - self.document["Parameters"].keys()
        assert not unknown, f"the template has no {unknown}"
        defaults = {name: parameter["Default"] for name, parameter in self.document["Parameters"].items()}
        self.parameters: dict[str, Any] = {**defaults, **parameters}
        self.resources = self._made(self.document["Resources"])
        self.outputs = {name: output["Value"] for name, output in self._made(self.document["Outputs"]).items()}

    def properties(self, name: str) -> dict[str, Any]:
        """Return the properties of a resource."""
        found: dict[str, Any] = self.resources[name]["Properties"]
        return found

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of every resource of a type, by name."""
        return {name: made["Properties"] for name, made in self.resources.items() if made["Type"] == kind}

    def ref(self, name: str) -> str:
        """Return what `Ref` gives."""
        if name in PSEUDO:
            return PSEUDO[name]
        if name in self.parameters:
            return str(self.parameters[name])
        kind = self._declared(name)["Type"]
        return self.arn(name) if kind in ARN_IS_THE_REF else self._physical_name(name)

    def arn(self, name: str) -> str:
        """Return the ARN of a resource."""
        return _ARNS[self._declared(name)["Type"]](self._physical_name(name))

    def holds(self, condition: str) -> bool:
        """Tell whether a condition holds."""
        return self._test(self.document["Conditions"][condition])

    def _made(self, section: Mapping[str, Any]) -> dict[str, Any]:
        there = {name: one for name, one in section.items() if "Condition" not in one or self.holds(one["Condition"])}
        return {name: self._resolve(one) for name, one in there.items()}

    def _declared(self, name: str) -> dict[str, Any]:
        declared: dict[str, Any] = self.document["Resources"][name]
        assert "Condition" not in declared or self.holds(declared["Condition"]), f"{name} is not made"
        return declared

    def _physical_name(self, name: str) -> str:
        declared = self._declared(name)
        given = declared.get("Properties", {}).get(_NAMES.get(declared["Type"], ""))
        return f"coldstream-{name.lower()}" if given is None else str(self._resolve(given))

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [resolved for each in value if (resolved := self._resolve(each)) is not _NOTHING]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((key, argument),) = value.items()
            if key == "Ref":
                return _NOTHING if argument == "AWS::NoValue" else self.ref(argument)
            if key.startswith("Fn::"):
                return self._call(key, argument)
        pairs = ((key, self._resolve(each)) for key, each in value.items())
        return {key: resolved for key, resolved in pairs if resolved is not _NOTHING}

    def _call(self, function: str, argument: Any) -> Any:
        if function == "Fn::If":
            condition, yes, no = argument
            return self._resolve(yes if self.holds(condition) else no)
        if function == "Fn::GetAtt":
            name, attribute = argument
            return self._attribute(name, attribute)
        if function == "Fn::Join":
            separator, parts = argument
            return separator.join(self._resolve(parts))
        assert function == "Fn::Sub", f"{function} is not known here"
        text, given = argument if isinstance(argument, list) else (argument, {})
        own = {name: self._resolve(value) for name, value in given.items()}
        return _VARIABLE.sub(lambda match: own[match[1]] if match[1] in own else self._variable(match[1]), text)

    def _variable(self, variable: str) -> str:
        name, _, attribute = variable.partition(".")
        return self._attribute(name, attribute) if attribute else self.ref(name)

    def _attribute(self, name: str, attribute: str) -> str:
        if attribute == "Arn":
            return self.arn(name)
        assert attribute in {"Name", "QueueName"}, f"{name}.{attribute} is not known here"
        return self._physical_name(name)

    def _test(self, condition: Any) -> bool:
        ((function, arguments),) = condition.items()
        if function == "Fn::Not":
            return not self._test(arguments[0])
        assert function == "Fn::Equals", f"{function} is not known here"
        left, right = map(self._resolve, arguments)
        return bool(left == right)


def references(value: Any) -> set[str]:
    """Return the names of parameters, conditions and resources that an expression speaks of."""
    text = json.dumps(value)
    found = set(re.findall(r'"(?:Ref|Condition)": "([^"]+)"', text))
    found |= set(re.findall(r'"Fn::(?:GetAtt|If)": \["([^"]+)"', text))
    return found | {name.partition(".")[0] for name in _VARIABLE.findall(text)}
