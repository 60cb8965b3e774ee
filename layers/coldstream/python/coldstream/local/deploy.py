"""Create what a template declares, on the emulated AWS, and say what its expressions came to.

The emulator's own CloudFormation does the work, so that Ref, GetAtt, Sub and conditions mean what they mean there: each
expression we want to know is an output of the stack. Two things are different from a real deployment:

- Resources of services that live at another endpoint (DynamoDB Local, an S3-compatible server) are created there by
  their own API, and stand in the stack as parameters that hold their names.
- DeletionPolicy, the protection of tables and the versions of objects are dropped: what a laptop creates, it deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from coldstream.errors import UnavailableError
from coldstream.local.environment import ELSEWHERE, ENDPOINT, client
from coldstream.local.messages import FunctionConfig, QueueConfig
from coldstream.local.template import Expression, Function, Template

_ARN = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}-%s"
_TABLE_PROPERTIES = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
_DROPPED = frozenset({"DeletionPolicy", "UpdateReplacePolicy"})
_DROPPED_PROPERTIES = frozenset({"DeletionProtectionEnabled", "VersioningConfiguration"})


@dataclass(frozen=True, slots=True)
class DeployedFunction:
    """A function with its expressions resolved."""

    function: Function
    config: FunctionConfig
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A stack on the emulated AWS. `outputs` are the template's, without those that speak of an HTTP API."""

    stack_name: str
    environment: Mapping[str, str]
    outputs: Mapping[str, str]
    functions: tuple[DeployedFunction, ...]
    elsewhere: Mapping[str, str]
    """Resources created outside the stack: type by name."""


def deploy(
    template: Template, environment: Mapping[str, str], *, stack_name: str, parameters: Mapping[str, str]
) -> Deployment:
    """Create the template's resources. Raises UnavailableError when the endpoint fails, or refuses them."""
    elsewhere: dict[str, str] = {}
    try:
        body = _place(template.body, environment, stack_name, elsewhere)
        wanted = {name: output for name, output in template.outputs.items() if name not in template.api_outputs}
        expressions = {f"Local{number}": value for number, value in enumerate(_expressions(template.functions))}
        body["Outputs"] = {**wanted, **{name: {"Value": value} for name, value in expressions.items()}}
        values = _create_stack(environment, stack_name, body, parameters)
        resolved = iter([values[name] for name in expressions])
        functions = tuple([_resolve(function, resolved, environment) for function in template.functions])
    except (BotoCoreError, ClientError, ResponseParserError, KeyError) as err:
        undeploy(stack_name, environment, elsewhere)
        raise UnavailableError(f"{environment[ENDPOINT]} could not create what the template declares: {err}") from err
    except BaseException:  # Ctrl-C above all: what is there already has nobody else to delete it
        undeploy(stack_name, environment, elsewhere)
        raise
    outputs = {name: values[name] for name in wanted if name in values}
    return Deployment(stack_name, environment, outputs, functions, elsewhere)


def undeploy(stack_name: str, environment: Mapping[str, str], elsewhere: Mapping[str, str]) -> None:
    """Delete a stack and all that is in it, as far as the endpoints still answer."""
    with suppress(BotoCoreError, ClientError):
        cloudformation = client("cloudformation", environment)
        for resource in cloudformation.list_stack_resources(StackName=stack_name)["StackResourceSummaries"]:
            if resource["ResourceType"] == "AWS::S3::Bucket":
                _empty(client("s3", environment), resource["PhysicalResourceId"])
        cloudformation.delete_stack(StackName=stack_name)
    for name, resource_type in elsewhere.items():
        service = client(ELSEWHERE[resource_type], environment)
        with suppress(BotoCoreError, ClientError):
            if resource_type == "AWS::S3::Bucket":
                _empty(service, name)
                service.delete_bucket(Bucket=name)
            else:
                service.delete_table(TableName=name)


def _place(
    body: Mapping[str, Any], environment: Mapping[str, str], stack_name: str, elsewhere: dict[str, str]
) -> dict[str, Any]:
    """Return what the stack is to hold, having created in `elsewhere` what lives at another endpoint."""
    resources, parameters = {}, dict(body.get("Parameters", {}))
    for name, resource in body["Resources"].items():
        service = ELSEWHERE.get(resource["Type"], "")
        if f"{ENDPOINT}_{service.upper()}" in environment:
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
    """Return the parameters of CreateTable for a table of a template: what makes a difference where nothing is kept."""
    properties = resource["Properties"]
    return {key: properties[key] for key in _TABLE_PROPERTIES if key in properties}


def _create_elsewhere(service: Any, name: str, resource: Mapping[str, Any]) -> None:
    if resource["Type"] == "AWS::S3::Bucket":
        service.create_bucket(Bucket=name)
    else:
        service.create_table(TableName=name, **table_parameters(resource))


def _expressions(functions: tuple[Function, ...]) -> Iterator[Expression]:
    """Yield what `_resolve` wants to know of each function, in its order."""
    for function in functions:
        yield {"Fn::Sub": _ARN % function.name}
        yield from function.environment.values()
        for queue in function.queues:
            yield queue.queue_arn


def _resolve(function: Function, values: Iterator[str], environment: Mapping[str, str]) -> DeployedFunction:
    arn = next(values)
    variables = {name: next(values) for name in function.environment}
    queues = []
    for queue in function.queues:
        queue_arn = next(values)
        url = client("sqs", environment).get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        queues.append(QueueConfig(url, queue_arn, queue.batch_size, queue.reports_failures))
    config = FunctionConfig(
        function.name, arn, function.handler, function.timeout_s, function.memory_mb, tuple(queues), bool(function.apis)
    )
    return DeployedFunction(function, config, variables)


def _create_stack(
    environment: Mapping[str, str], stack_name: str, body: Mapping[str, Any], parameters: Mapping[str, str]
) -> dict[str, str]:
    """Create the stack, wait for it, and return its outputs."""
    cloudformation = client("cloudformation", environment)
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
