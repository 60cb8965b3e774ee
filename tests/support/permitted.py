"""What the template's roles and policies say of requests that code was seen to make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.cloudformation import Stack
from tests.support.iam import Request, is_allowed, is_denied

LAMBDAS = {"logs:CreateLogStream", "logs:PutLogEvents", "xray:PutTraceSegments", "xray:PutTelemetryRecords"}
"""What Lambda does on behalf of a function."""


def arns_of(stack: Stack) -> dict[str, str]:
    """Return the resources that code calls, for `recorded_calls`."""
    return {"bucket": stack.arn("Bucket"), "table": stack.arn("Table"), "bus": stack.arn("EventBus")}


def granted(stack: Stack, principal: str) -> list[Mapping[str, Any]]:
    """Return the statements of a role or a policy."""
    properties = stack.properties(principal)
    policies = properties.get("Policies", [properties])
    return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]


def refused(stack: Stack, principal: str, requests: Sequence[Request]) -> list[Request]:
    """Return the requests that a role or policy does not allow, or that the bucket refuses."""
    statements = granted(stack, principal)
    bucket = stack.properties("BucketPolicy")["PolicyDocument"]["Statement"]
    return [each for each in requests if not is_allowed(statements, each) or is_denied(bucket, each)]


def never_used(stack: Stack, principal: str, requests: Iterable[Request]) -> set[str]:
    """Return the actions that a role or policy allows, but no request uses; each statement counts by itself."""
    unused = set()
    asked = list(requests)
    for statement in granted(stack, principal):
        if statement["Effect"] != "Allow":
            continue
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        unused |= {
            action
            for action in actions
            if not any(each.action == action and is_allowed([statement], each) for each in asked)
        }
    return unused
