"""Options that several programs share, declared once, as the fields of a frozen dataclass.

    @dataclass(frozen=True, kw_only=True)
    class PaintArguments:
        color: str = option("red", help="Color of the paint.", metavar="COLOR")

The flag follows from the field's name, and how a value is read from its type. `add_options` gives them to argparse and
`from_namespace` makes the dataclass of what was parsed; `cli.declared_options` does both for typer.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

_METADATA = "option"

Arguments = TypeVar("Arguments")


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """An option: the name of its field, its flag, and what a user may give.

    `kind` is bool for a switch, else what makes a value of text. `variable` is the environment's, read if the option is
    not given. `group` is a heading under which argparse lists it.
    """

    name: str
    flag: str
    kind: type
    default: Any
    help: str
    metavar: str | None
    choices: tuple[str, ...]
    variable: str | None
    group: str | None


def option(
    default: Any,
    *,
    help: str,  # noqa: A002  as both parsers call it
    flag: str | None = None,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    variable: str | None = None,
    group: str | None = None,
) -> Any:
    """Declare an option as a field of a dataclass."""
    found = {"flag": flag, "help": help, "metavar": metavar, "choices": choices, "variable": variable, "group": group}
    return field(default=default, metadata={_METADATA: found})


def options_of(arguments: type) -> Iterator[DeclaredOption]:
    """Yield the options that a dataclass declares, in order."""
    hints = get_type_hints(arguments)
    for one in fields(arguments):
        declared = dict(one.metadata[_METADATA])
        flag = declared.pop("flag") or f"--{one.name.replace('_', '-')}"
        kinds = [kind for kind in get_args(hints[one.name]) if kind is not NoneType] or [hints[one.name]]
        yield DeclaredOption(name=one.name, flag=flag, kind=kinds[0], default=one.default, **declared)


def add_options(
    parser: argparse.ArgumentParser,
    arguments: type,
    *,
    leave_out: Collection[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Add the options that a dataclass declares, but for those whose fields are left out."""
    groups: dict[str | None, argparse._ActionsContainer] = {None: parser}
    for one in options_of(arguments):
        if one.name in leave_out:
            continue
        if one.group not in groups:
            groups[one.group] = parser.add_argument_group(one.group)
        default = one.default if one.variable is None else environment.get(one.variable, one.default)
        about = one.help.replace("%", "%%")
        if one.variable is not None:
            about += f" Else {one.variable} in the environment."
        elif one.default is not None and one.kind is not bool:
            about += " Default: %(default)s."
        kind: dict[str, Any] = {"action": "store_true"}
        if one.kind is not bool:
            kind = {"type": one.kind, "metavar": one.metavar, "choices": one.choices or None}
        groups[one.group].add_argument(one.flag, dest=one.name, default=default, help=about, **kind)


def from_namespace(arguments: type[Arguments], given: argparse.Namespace) -> Arguments:
    """Make the dataclass of what argparse has parsed. What was left out has its default."""
    values = vars(given)
    return arguments(**{one.name: values[one.name] for one in options_of(arguments) if one.name in values})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamArguments:
    """Which streams a name means."""

    vhost: str = option("/", help="Virtual host of the streams.", metavar="VHOST")
    incarnation: str | None = option(
        None, help="One incarnation of the one stream that is named; else the newest.", metavar="ID"
    )
