"""Read template.yaml: which functions there are, what calls them, and the resources that CloudFormation makes.

SAM's own resources (`AWS::Serverless::*`) are read here, as far as a laptop runs them: functions called by an SQS queue
or by the default route of an HTTP API. Values stay the expressions that they are in the template (`{"Ref": "Bucket"}`)
until `deploy` has them resolved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from coldstream.errors import InvalidSettingError

Expression = Any
"""A plain value or an intrinsic function, in CloudFormation's long form."""

_SERVERLESS = "AWS::Serverless::"
_CHECKOUT = Path(__file__).resolve().parents[5]


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A queue whose messages call a function, up to `batch_size` at once.

    `reports_failures` is whether the function answers with the messages that failed (`batchItemFailures`).
    """

    queue_arn: Expression
    batch_size: int
    reports_failures: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A function as the template declares it, the globals merged in.

    `apis` are the HTTP APIs whose default route it is.
    """

    name: str
    handler: str
    code: Path
    layers: tuple[Path, ...]
    timeout_s: int
    memory_mb: int
    environment: Mapping[str, Expression]
    queues: tuple[QueueSource, ...]
    apis: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A template: its functions, and `body`, what is left for CloudFormation once SAM's own resources are out.

    `outputs` are expressions by name. CloudFormation cannot resolve those of `api_outputs`: they speak of an HTTP API.
    """

    path: Path
    body: Mapping[str, Any]
    functions: tuple[Function, ...]
    outputs: Mapping[str, Mapping[str, Any]]
    api_outputs: tuple[str, ...]


def find_template(path: Path | None = None) -> Path:
    """Return `path`, else template.yaml of this directory, else that of the checkout. Raises InvalidSettingError."""
    candidates = [path] if path is not None else [Path.cwd() / "template.yaml", _CHECKOUT / "template.yaml"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    looked = " or ".join(str(candidate) for candidate in candidates)
    raise InvalidSettingError("template", f"there is no {looked}; name it with --template")


def load_template(path: Path) -> Template:
    """Read a SAM template. Raises InvalidSettingError when it is none, or asks for what a laptop does not run."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader underneath
        return _template(path, document)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as err:
        raise InvalidSettingError("template", f"{path} cannot be read as a SAM template: {err!r}") from err


def _template(path: Path, document: Mapping[str, Any]) -> Template:
    resources = document["Resources"]
    functions = tuple(_functions(path.parent, document.get("Globals", {}).get("Function", {}), resources))
    if sum(bool(function.apis) for function in functions) > 1:
        raise InvalidSettingError("template", "more than one function has an HTTP API; one can be served locally")
    kept = {name: resource for name, resource in resources.items() if not resource["Type"].startswith(_SERVERLESS)}
    serverless = set(resources) - set(kept)
    outputs = document.get("Outputs", {})
    api_outputs = tuple(name for name, output in outputs.items() if serverless.intersection(_references(output)))
    body = {section: document[section] for section in ("Parameters", "Mappings", "Conditions") if section in document}
    return Template(path, {**body, "Resources": kept}, functions, outputs, api_outputs)


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


def _functions(root: Path, defaults: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[Function]:
    for name, resource in resources.items():
        if resource["Type"] != f"{_SERVERLESS}Function":
            continue
        own = resource["Properties"]
        properties = {**defaults, **own}
        layers = [*defaults.get("Layers", []), *own.get("Layers", [])]
        events = own.get("Events", {}).values()
        yield Function(
            name=name,
            handler=properties["Handler"],
            code=root / properties["CodeUri"],
            layers=tuple(root / uri for uri in _layer_uris(layers, resources)),
            timeout_s=properties.get("Timeout", 3),
            memory_mb=properties.get("MemorySize", 128),
            environment={
                **defaults.get("Environment", {}).get("Variables", {}),
                **own.get("Environment", {}).get("Variables", {}),
            },
            queues=tuple(_queue(event["Properties"]) for event in events if event["Type"] == "SQS"),
            apis=tuple(_api(name, event.get("Properties", {})) for event in events if event["Type"] == "HttpApi"),
        )


def _layer_uris(layers: Iterable[Expression], resources: Mapping[str, Any]) -> Iterator[str]:
    """Yield the directories of layers that this template declares; another's, named by ARN, are not on this machine."""
    for layer in layers:
        if isinstance(layer, dict) and "Ref" in layer:
            yield resources[layer["Ref"]]["Properties"]["ContentUri"]


def _queue(event: Mapping[str, Any]) -> QueueSource:
    reports = "ReportBatchItemFailures" in event.get("FunctionResponseTypes", [])
    return QueueSource(event["Queue"], event.get("BatchSize", 10), reports)


def _api(function: str, event: Mapping[str, Any]) -> str:
    if "Path" in event or "Method" in event:
        raise InvalidSettingError("template", f"{function} has a route of its own; only default routes run locally")
    api = event.get("ApiId", {"Ref": "ServerlessHttpApi"})
    return str(api["Ref"])


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
