"""template.yaml: its functions, what calls them, and the resources that CloudFormation creates.

SAM's own resources (`AWS::Serverless::*`) are read here, as far as a laptop runs them: functions that an SQS queue, a
schedule of minutes or a route of an HTTP API calls, which is the default one or all paths below a prefix. Of
CloudFormation's resources, a laptop keeps those that announcements, lookups and jobs need. The rest, such as roles,
alarms and Spark, is left out; a template in which something kept refers to something left out is refused, unless that
is optional. Values stay expressions
(`{"Ref": "Bucket"}`) until `deployment` resolves them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from coldstream.errors import InvalidSettingError

Expression = Any
"""A plain value or an intrinsic function, in CloudFormation's long form."""

_SERVERLESS = "AWS::Serverless::"
_LOCAL = frozenset(
    {
        "AWS::DynamoDB::Table",
        "AWS::Events::EventBus",
        "AWS::Events::Rule",
        "AWS::S3::Bucket",
        "AWS::SQS::Queue",
        "AWS::SecretsManager::Secret",
    }
)
_PROXY = re.compile(r"(?P<prefix>/[A-Za-z0-9_-]+)/\{proxy\+\}")
_PACKED = Path(__file__).resolve().parent / "sam"
"""Where a wheel has the template and the functions that it names."""

_RATE = re.compile(r"rate\(([0-9]{1,4}) minutes?\)")

_CHECKOUT = Path(__file__).resolve().parents[5]


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A queue whose messages call a function, up to `batch_size` at once.

    `reports_failures`: the function's answer lists the messages that failed (`batchItemFailures`). It is polled unless
    `is_enabled` comes to false.
    """

    queue_arn: Expression
    batch_size: int
    reports_failures: bool
    is_enabled: Expression = True


@dataclass(frozen=True, slots=True)
class ScheduleSource:
    """A schedule that calls a function every so many seconds, if its state is ENABLED."""

    every_s: int
    state: Expression


@dataclass(frozen=True, slots=True)
class TemplateFunction:
    """A function as the template declares it, globals merged in.

    `apis` are the HTTP APIs that have a route to it: the default one, or that of all paths below `prefix`.
    With a `condition` of the template that does not hold, there is no such function.
    """

    name: str
    handler: str
    code: Path
    layers: tuple[Path, ...]
    timeout_s: int
    memory_mb: int
    environment: Mapping[str, Expression]
    queues: tuple[QueueSource, ...]
    schedule: ScheduleSource | None
    apis: tuple[str, ...]
    prefix: str = ""
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A template: its functions, and `body`, the part that CloudFormation creates on a laptop.

    `outputs` are expressions by name, without those that refer to something left out. CloudFormation cannot resolve the
    ones named in `api_outputs`: each refers to the HTTP API whose name it has there, which the stack serves itself.
    """

    path: Path
    body: Mapping[str, Any]
    functions: tuple[TemplateFunction, ...]
    outputs: Mapping[str, Mapping[str, Any]]
    api_outputs: Mapping[str, str]


def find_template(path: Path | None = None) -> Path:
    """Return `path`, else template.yaml here, else the package's or the checkout's. Raises InvalidSettingError."""
    places = (Path.cwd(), _PACKED, _CHECKOUT)
    candidates = [path] if path is not None else [place / "template.yaml" for place in places]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    looked = " or ".join(str(candidate) for candidate in candidates)
    raise InvalidSettingError("template", f"there is no {looked}; name the template with --template")


def load_document(path: Path) -> Any:
    """Return the whole template, its intrinsic functions in the long form."""
    return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506  it derives from SafeLoader


def load_template(path: Path) -> Template:
    """Read a SAM template. Raises InvalidSettingError if it is none, or needs something that a laptop does not run."""
    try:
        return _template(path, load_document(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as err:
        raise InvalidSettingError("template", f"{path} cannot be read as a SAM template: {err!r}") from err


def _template(path: Path, document: Mapping[str, Any]) -> Template:
    resources = document["Resources"]
    functions = tuple(_functions(path.parent, document.get("Globals", {}).get("Function", {}), resources))
    places = [(api, function.prefix) for function in functions for api in function.apis]
    if len(places) > len(set(places)):
        raise InvalidSettingError("template", "two functions have the same route of an HTTP API; one can be served")
    kept = {name: resource for name, resource in resources.items() if _is_local(resource)}
    left_out = set(resources) - set(kept)
    _require_kept(functions, kept, resources, left_out)
    served = {api for function in functions for api in function.apis}
    outputs: dict[str, Mapping[str, Any]] = {}
    api_outputs: dict[str, str] = {}
    for name, output in document.get("Outputs", {}).items():
        references = set(_references(output))
        if not references & (left_out - served):
            outputs[name] = output
            for api in references & served:
                api_outputs[name] = api
    body = {section: document[section] for section in ("Parameters", "Mappings", "Conditions") if section in document}
    return Template(path, {**body, "Resources": kept}, functions, outputs, api_outputs)


def _is_local(resource: Mapping[str, Any]) -> bool:
    """Tell whether a laptop creates a resource.

    A rule on the default bus is left out: that bus brings events of AWS's own services, which do not run here.
    """
    is_of_default_bus = resource["Type"] == "AWS::Events::Rule" and "EventBusName" not in resource["Properties"]
    return resource["Type"] in _LOCAL and not is_of_default_bus


def _require_kept(
    functions: Iterable[TemplateFunction], kept: Mapping[str, Any], resources: Mapping[str, Any], left_out: set[str]
) -> None:
    """Refuse a template in which a function, or a kept resource, refers to one that is left out."""
    needs = {name: _references(resource["Properties"]) for name, resource in kept.items() if "Properties" in resource}
    for function in functions:
        needs[function.name] = _references([*function.environment.values(), *(q.queue_arn for q in function.queues)])
    for name, references in needs.items():
        for missing in sorted(left_out.intersection(references)):
            kind = resources[missing]["Type"]
            raise InvalidSettingError("template", f"{name} needs {missing}, and a laptop runs no {kind}")


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms: `!Ref X` is `{"Ref": "X"}`, `!Sub X` is `{"Fn::Sub": "X"}`."""


def _intrinsic(loader: Any, tag: str, node: Any) -> Expression:
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        if tag == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    return {tag if tag in {"Ref", "Condition"} else f"Fn::{tag}": value}


_Loader.add_multi_constructor("!", _intrinsic)


def _functions(root: Path, defaults: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[TemplateFunction]:
    for name, resource in resources.items():
        if resource["Type"] != f"{_SERVERLESS}Function":
            continue
        own = resource["Properties"]
        properties = {**defaults, **own}
        # SAM joins lists and maps with those of the globals; any other property of a function replaces the global one.
        layers = [*defaults.get("Layers", []), *own.get("Layers", [])]
        events = own.get("Events", {}).values()
        routes = [_route(name, event.get("Properties", {})) for event in events if event["Type"] == "HttpApi"]
        if len({prefix for _, prefix in routes}) > 1:
            raise InvalidSettingError("template", f"{name} has several routes; a laptop serves one of each function")
        yield TemplateFunction(
            name=name,
            handler=properties["Handler"],
            code=root / properties["CodeUri"],
            layers=tuple(_packages(root / uri) for uri in _layer_uris(layers, resources)),
            timeout_s=properties.get("Timeout", 3),
            memory_mb=properties.get("MemorySize", 128),
            environment=_variables(defaults, own, resources),
            queues=tuple(_queue(event["Properties"]) for event in events if event["Type"] == "SQS"),
            schedule=next(filter(None, (_schedule(event) for event in events)), None),
            apis=tuple(api for api, _ in routes),
            prefix=next((prefix for _, prefix in routes), ""),
            condition=resource.get("Condition"),
        )


def _variables(
    defaults: Mapping[str, Any], own: Mapping[str, Any], resources: Mapping[str, Any]
) -> dict[str, Expression]:
    """Return a function's variables, without those that speak of an optional resource that a laptop does not run."""
    variables = {
        **defaults.get("Environment", {}).get("Variables", {}),
        **own.get("Environment", {}).get("Variables", {}),
    }
    missing = {name for name, resource in resources.items() if "Condition" in resource and not _is_local(resource)}
    return {name: value for name, value in variables.items() if not missing & set(_references(value))}


def _schedule(event: Mapping[str, Any]) -> ScheduleSource | None:
    """Return a schedule of minutes. What is called every few hours is left to commands."""
    if event["Type"] != "ScheduleV2":
        return None
    expression = event["Properties"]["ScheduleExpression"]
    match = _RATE.fullmatch(expression) if isinstance(expression, str) else None
    return None if match is None else ScheduleSource(60 * int(match[1]), event["Properties"].get("State", "ENABLED"))


def _layer_uris(layers: Iterable[Expression], resources: Mapping[str, Any]) -> Iterator[str]:
    """Yield the directories of the template's own layers. Others, named by ARN, are not on this machine."""
    for layer in layers:
        if isinstance(layer, dict) and "Ref" in layer:
            yield resources[layer["Ref"]]["Properties"]["ContentUri"]


def _packages(layer: Path) -> Path:
    """Return the directory of a layer's packages: its `python`, or the layer itself, which SAM has yet to build."""
    inside = layer / "python"
    return inside if inside.is_dir() else layer


def _queue(event: Mapping[str, Any]) -> QueueSource:
    reports = "ReportBatchItemFailures" in event.get("FunctionResponseTypes", [])
    return QueueSource(event["Queue"], event.get("BatchSize", 10), reports, event.get("Enabled", True))


def _route(function: str, event: Mapping[str, Any]) -> tuple[str, str]:
    """Return the API of a route, and its prefix, which is empty for the default route."""
    api = str(event.get("ApiId", {"Ref": "ServerlessHttpApi"})["Ref"])
    if "Path" not in event and "Method" not in event:
        return api, ""
    route = _PROXY.fullmatch(event.get("Path", ""))
    if route is None or event.get("Method") != "ANY":
        problem = f"{function} has a route that does not run locally; the default one does, and ANY /prefix/{{proxy+}}"
        raise InvalidSettingError("template", problem)
    return api, route["prefix"]


def _references(expression: Expression) -> Iterator[str]:
    """Yield the names that an expression refers to."""
    if isinstance(expression, dict):
        for key, value in expression.items():
            if key == "Ref":
                yield value
            elif key == "Fn::GetAtt":
                yield value[0]
            elif key == "Fn::Sub":
                text = value if isinstance(value, str) else value[0]
                yield from (name.split("}")[0].split(".")[0] for name in text.split("${")[1:])
            else:
                yield from _references(value)
    elif isinstance(expression, list):
        for item in expression:
            yield from _references(item)
