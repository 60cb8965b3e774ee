"""Forms of jobs, made from the models of their specs: each field with a label, help, and what was typed into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from coldstream.console.page_request import FormFields
from coldstream.errors import InvalidInputError
from coldstream.jobs.spec_fields import CommonSpec, SpecModel
from coldstream.jobs.specs import SPECS, JobKind
from coldstream.jobs.targets import TARGET_TYPES, ToExchange, ToStream, ToSuperStream, ToTable

TARGETS: Mapping[str, type[SpecModel]] = dict(
    zip(TARGET_TYPES, (ToStream, ToSuperStream, ToExchange, ToTable), strict=True)
)
TARGET_NAMES = {"stream": "a stream", "super_stream": "a super stream", "exchange": "an exchange", "table": "a table"}
KIND_WORDS: Mapping[JobKind, tuple[str, str]] = {
    JobKind.STORE: ("Store", "Archive a broker's streams, as long as the job runs"),
    JobKind.LOAD: ("Load", "Replay archived messages to a broker or a table"),
    JobKind.EXPORT: ("Export", "Write messages or whole chunks into files"),
    JobKind.COMPACT: ("Compact", "Merge small fragments, and compress them"),
    JobKind.SCRUB: ("Scrub", "Check table against bucket against bytes"),
    JobKind.RETENTION: ("Retention", "Remove what the policies let go"),
    JobKind.ERASE: ("Erase", "Erase the bytes of some messages for good"),
}
_LABELS = {
    "streams": "Streams",
    "stream": "Stream",
    "start": "From",
    "end": "Up to, not including",
    "window_by": "Times are those of",
    "rate": "Rate",
    "vhost": "Virtual host",
    "after_load": "After the load",
    "max_lag": "Greatest lag",
    "follow": "Follow",
    "deep": "Deep",
    "gzip": "Compress with gzip",
    "dry_run": "Dry run",
    "allow_skipped": "Allow skipped",
    "max_attempts": "Attempts",
    "target.vhost": "Virtual host of the target",
    "target.name": "Name of the target",
    "target.broker": "Broker of the target",
    "target.format": "Format of the files",
}
_NOT_ASKED = {"kind", "selection", "target", "target.type"}
_AT_THE_END = tuple(name for name in CommonSpec.model_fields if name != "vhost")
"""Fields of every kind, which have a part of the form of their own."""


@dataclass(frozen=True, slots=True)
class JobField:
    """A field of a form. `widget` is text, number, lines, choice or check; `name` has a dot within a target."""

    name: str
    label: str
    help: str
    widget: str
    value: str
    choices: tuple[str, ...] = ()
    is_required: bool = False
    problem: str = ""

    @property
    def id(self) -> str:
        """The id of the element."""
        return f"f-{self.name.replace('.', '-')}"


@dataclass(frozen=True, slots=True)
class JobForm:
    """The form of a kind: its own fields, and those that all kinds have. `problem` is of no one field."""

    kind: JobKind
    target: str
    own: tuple[JobField, ...]
    common: tuple[JobField, ...]
    problem: str = ""

    @property
    def fields(self) -> tuple[JobField, ...]:
        """All fields."""
        return self.own + self.common

    def with_error(self, err: InvalidInputError) -> JobForm:
        """Return the form with what is wrong beside the field that it belongs to."""
        named = {field.name for field in self.fields}
        place = err.field
        while place and place not in named:
            place = place.rpartition(".")[0]
        if not place:
            return replace(self, problem=str(err))
        problem = _PLAINER.get(err.problem, err.problem)

        def told(field: JobField) -> JobField:
            return replace(field, problem=problem) if field.name == place else field

        return replace(self, own=tuple(map(told, self.own)), common=tuple(map(told, self.common)))


_PLAINER = {
    "Field required": "must be given",
    "String should have at least 1 character": "must not be empty",
    "Input should be a valid integer": "is a whole number",
    "Input should be a valid number": "is a number",
}


def form_of(kind: JobKind, typed: FormFields, *, is_new: bool) -> JobForm:
    """Return the form of a kind with what was typed; a new one has the defaults where nothing is given."""
    target = typed.get("target.type")
    target = target if target in TARGETS else TARGET_TYPES[0]
    model = SPECS[kind]
    fields = dict(model.model_fields)
    if "target" in fields:
        fields |= {f"target.{name}": field for name, field in TARGETS[target].model_fields.items()}
    names = [name for name in fields if name not in _NOT_ASKED and name not in _AT_THE_END]
    own = [_field(name, fields[name], typed, is_new=is_new) for name in sorted(names, key=_rank)]
    common = [_field(name, model.model_fields[name], typed, is_new=is_new) for name in _AT_THE_END]
    return JobForm(kind, target, tuple(own), tuple(common))


def edit_form(kind: JobKind, editable: frozenset[str], typed: FormFields) -> JobForm:
    """Return the form of the fields of a job that can be changed."""
    model = SPECS[kind]
    fields = [_field(name, model.model_fields[name], typed, is_new=False) for name in model.model_fields]
    return JobForm(kind, "", tuple(field for field in fields if field.name in editable), ())


def given_by(form: JobForm, typed: FormFields) -> dict[str, Any]:
    """Return what a form says as a mapping for `parse_spec`. What is empty is left out, unless it must be given."""
    given: dict[str, Any] = {"kind": form.kind.value}
    if form.target and "target" in SPECS[form.kind].model_fields:
        given["target"] = {"type": form.target}
    for field in form.fields:
        value = value_of(field, typed)
        if value is None and not field.is_required:
            continue
        place, _, name = field.name.rpartition(".")
        (given[place] if place else given)[name] = "" if value is None else value
    return given


def value_of(field: JobField, typed: FormFields) -> Any:
    """Return a field's value as JSON has it, None if nothing was typed. What is no number stays text."""
    text = typed.get(field.name)
    match field.widget:
        case "check":
            return field.name in typed
        case "lines":
            lines = [line.removesuffix("\r") for line in text.split("\n")]
            found = [line for line in lines if line]
            return found if found or field.is_required else None
        case "number":
            return _number(text.strip()) if text.strip() else None
        case _:
            return text or None


def typed_of(spec: Mapping[str, Any]) -> FormFields:
    """Return a spec as it would have been typed."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in spec.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": (str(one),) for inner, one in value.items() if one is not None}
        elif isinstance(value, bool):
            found |= {name: ("on",)} if value else {}
        elif isinstance(value, list | tuple):
            found[name] = ("\n".join(map(str, value)),)
        elif value is not None:
            found[name] = (f"{value:g}" if isinstance(value, float) else str(value),)
    return FormFields(found)


def _rank(name: str) -> int:
    """Order the fields: the streams, where they are, where they go to, and then the rest as the model has it."""
    first = ("streams", "stream", "vhost", "broker", "destination", "target.name", "target.path")
    if name in first:
        return first.index(name)
    return len(first) + (0 if name.startswith("target.") else 1)


def _field(name: str, field: FieldInfo, typed: FormFields, *, is_new: bool) -> JobField:
    annotation = _inner(field.annotation)
    widget, choices = _widget(annotation)
    default = "" if field.is_required() else _text(field.default)
    value = typed.get(name, default if is_new else "")
    last = name.rpartition(".")[2]
    label = _LABELS.get(name) or _LABELS.get(last) or last.replace("_", " ").capitalize()
    return JobField(name, label, field.description or "", widget, value, choices, field.is_required())


def _inner(annotation: Any) -> Any:
    """Return the type within Annotated and beside None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _inner(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return _inner(next(one for one in get_args(annotation) if one is not NoneType))
    return annotation


def _widget(annotation: Any) -> tuple[str, tuple[str, ...]]:
    if get_origin(annotation) is Literal:
        return "choice", tuple(map(str, get_args(annotation)))
    if annotation is bool:
        return "check", ()
    if annotation in {int, float}:
        return "number", ()
    return ("lines", ()) if get_origin(annotation) is tuple else ("text", ())


def _text(value: Any) -> str:
    if value is None or value is False or value == ():
        return ""
    return "on" if value is True else str(value)


def _number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
