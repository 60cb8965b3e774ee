"""Deploy a template to the emulated AWS, and resolve its expressions.

The emulator's own CloudFormation does the work, so that Ref, GetAtt, Sub and conditions need no copy of their rules
here: each expression that we want resolved becomes an output of the stack. Two things differ from a real deployment:

- A service may live at another endpoint (DynamoDB Local, an S3-compatible server). Its resources are created there by
  its own API, and the stack has parameters that hold their names.
- DeletionPolicy, the protection of tables and the versions of objects are dropped: what a laptop creates, it deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from coldstream.errors import UnavailableError
from coldstream.local.environment import ELSEWHERE, ENDPOINT, client
from coldstream.local.function_protocol import FunctionConfig, QueueConfig
from coldstream.local.template import Expression, Template, TemplateFunction

_ARN = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}-%s"
_TABLE_PROPERTIES = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
_DROPPED = frozenset({"DeletionPolicy", "UpdateReplacePolicy"})
_DROPPED_PROPERTIES = frozenset({"DeletionProtectionEnabled", "VersioningConfiguration"})


@dataclass(frozen=True, slots=True)
class DeployedFunction:
    """A function of the template, its expressions resolved."""

    function: TemplateFunction
    config: FunctionConfig
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A stack on the emulated AWS. `outputs` are the template's, without those that refer to an HTTP API."""

    stack_name: str
    environment: Mapping[str, str]
    outputs: Mapping[str, str]
    functions: tuple[DeployedFunction, ...]
    elsewhere: Mapping[str, str]
    """Resources created outside of the stack: their types by their names."""


def deploy(
    template: Template, environment: Mapping[str, str], *, stack_name: str, parameters: Mapping[str, str]
) -> Deployment:
    """Create the template's resources. Raises UnavailableError if the endpoint fails or refuses them."""
    # Filled step by step, so that `undeploy` finds what exists of a deployment that failed halfway.
    elsewhere: dict[str, str] = {}
    try:
        body = _stack_body(template.body, environment, stack_name, elsewhere)
        outputs = {name: output for name, output in template.outputs.items() if name not in template.api_outputs}
        expressions = {f"Local{number}": value for number, value in enumerate(_expressions(template.functions))}
        body["Outputs"] = {**outputs, **{name: {"Value": value} for name, value in expressions.items()}}
        values = _create_stack(environment, stack_name, body, parameters)
        resolved = iter([values.get(name, "") for name in expressions])
        found = [_resolve(function, resolved, environment) for function in template.functions]
        functions = tuple([function for function in found if function is not None])
    except (BotoCoreError, ClientError, ResponseParserError, KeyError) as err:
        undeploy(stack_name, environment, elsewhere)
        raise UnavailableError(
            f"{environment[ENDPOINT]} could not create the resources of the template: {err}"
        ) from err
    except BaseException:  # Ctrl-C above all: nobody else knows what has been created so far
        undeploy(stack_name, environment, elsewhere)
        raise
    resolved_outputs = {name: values[name] for name in outputs if name in values}
    return Deployment(stack_name, environment, resolved_outputs, functions, elsewhere)


def undeploy(stack_name: str, environment: Mapping[str, str], elsewhere: Mapping[str, str]) -> None:
    """Delete a stack and everything in it, as far as the endpoints still answer."""
    with suppress(BotoCoreError, ClientError, ResponseParserError):
        cloudformation = client("cloudformation", environment)
        for resource in cloudformation.list_stack_resources(StackName=stack_name)["StackResourceSummaries"]:
            if resource["ResourceType"] == "AWS::S3::Bucket":
                # A bucket that holds objects cannot be deleted, and its stack would stay.
                _empty(client("s3", environment), resource["PhysicalResourceId"])
        cloudformation.delete_stack(StackName=stack_name)
    for name, resource_type in elsewhere.items():
        service = client(ELSEWHERE[resource_type], environment)
        with suppress(BotoCoreError, ClientError, ResponseParserError):
            if resource_type == "AWS::S3::Bucket":
                _empty(service, name)
                service.delete_bucket(Bucket=name)
            else:
                service.delete_table(TableName=name)


def _stack_body(
    body: Mapping[str, Any], environment: Mapping[str, str], stack_name: str, elsewhere: dict[str, str]
) -> dict[str, Any]:
    """Return the template for the stack. Resources of another endpoint are created there, and added to `elsewhere`.

    A secret is left out, and its name is empty: moto's CloudFormation knows none, and what a laptop serves to itself
    asks for no tokens.
    """
    resources, parameters = {}, dict(body.get("Parameters", {}))
    for name, resource in body["Resources"].items():
        service = ELSEWHERE.get(resource["Type"], "")
        if resource["Type"] == "AWS::SecretsManager::Secret":
            parameters[name] = {"Type": "String", "Default": ""}
        elif f"{ENDPOINT}_{service.upper()}" in environment:
            physical_name = f"{stack_name}-{name}".lower()
            _create_elsewhere(client(service, environment), physical_name, resource)
            elsewhere[physical_name] = resource["Type"]
            parameters[name] = {"Type": "String", "Default": physical_name}
        else:
            resources[name] = _deletable(resource)
    return {**body, "Parameters": parameters, "Resources": resources}


def _deletable(resource: Mapping[str, Any]) -> dict[str, Any]:
    properties = {key: value for key, value in resource.get("Properties", {}).items() if key not in _DROPPED_PROPERTIES}
    return {**{key: value for key, value in resource.items() if key not in _DROPPED}, "Properties": properties}


def table_parameters(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return CreateTable's parameters for a table of a template: those that matter to a table that is not kept."""
    properties = resource["Properties"]
    return {key: properties[key] for key in _TABLE_PROPERTIES if key in properties}


def _create_elsewhere(service: Any, name: str, resource: Mapping[str, Any]) -> None:
    if resource["Type"] == "AWS::S3::Bucket":
        service.create_bucket(Bucket=name)
    else:
        service.create_table(TableName=name, **table_parameters(resource))


def _expressions(functions: tuple[TemplateFunction, ...]) -> Iterator[Expression]:
    """Yield the expressions of each function, in the order in which `_resolve` takes their values."""
    for function in functions:
        values = [*function.environment.values()]
        for queue in function.queues:
            values += [queue.queue_arn, _as_text(queue.is_enabled)]
        if function.schedule is not None:
            values.append(function.schedule.state)
        if function.condition is not None:
            # What a function refers to that is not there need not be there, either.
            values = [{"Fn::If": [function.condition, value, ""]} for value in values]
            yield {"Fn::If": [function.condition, {"Fn::Sub": _ARN % function.name}, ""]}
        else:
            yield {"Fn::Sub": _ARN % function.name}
        yield from values


def _as_text(expression: Expression) -> Expression:
    """Return an expression that comes to true or false as one that comes to text, as outputs are."""
    if isinstance(expression, bool):
        return str(expression).lower()
    if isinstance(expression, dict):
        return {name: _as_text(value) for name, value in expression.items()}
    return [_as_text(value) for value in expression] if isinstance(expression, list) else expression


def _resolve(
    function: TemplateFunction, values: Iterator[str], environment: Mapping[str, str]
) -> DeployedFunction | None:
    """Return a function with the next values; None if its condition does not hold."""
    arn = next(values)
    variables = {name: next(values) for name in function.environment}
    of_queues = [(next(values), next(values)) for _ in function.queues]
    state = "" if function.schedule is None else next(values)
    if not arn:
        return None
    queues = []
    for queue, (queue_arn, is_enabled) in zip(function.queues, of_queues, strict=True):
        if is_enabled == "false":
            continue
        url = client("sqs", environment).get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        queues.append(QueueConfig(url, queue_arn, queue.batch_size, queue.reports_failures))
    config = FunctionConfig(
        function.name,
        arn,
        function.handler,
        function.timeout_s,
        function.memory_mb,
        tuple(queues),
        bool(function.apis),
        prefix=function.prefix,
    )
    every_s = function.schedule.every_s if function.schedule is not None and state == "ENABLED" else None
    return DeployedFunction(function, replace(config, every_s=every_s), variables)


def _create_stack(
    environment: Mapping[str, str], stack_name: str, body: Mapping[str, Any], parameters: Mapping[str, str]
) -> dict[str, str]:
    """Create the stack, wait until it is complete, and return its outputs."""
    cloudformation = client("cloudformation", environment)
    # `default=str`: YAML reads the unquoted version of a policy, 2012-10-17, as a date, and JSON has none.
    cloudformation.create_stack(
        StackName=stack_name,
        TemplateBody=json.dumps(body, default=str),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
    )
    cloudformation.get_waiter("stack_create_complete").wait(StackName=stack_name, WaiterConfig={"Delay": 1})
    stack = cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]
    return {output["OutputKey"]: output.get("OutputValue", "") for output in stack["Outputs"]}


def _empty(s3: Any, bucket: str) -> None:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        keys = [{"Key": item["Key"]} for item in page.get("Contents", [])]
        if keys:
            s3.delete_objects(Bucket=bucket, Delete={"Objects": keys})
