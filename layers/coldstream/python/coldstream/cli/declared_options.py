"""Commands whose options are declared as a dataclass (console.options), for typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Literal

import typer

from coldstream.terminal.options import DeclaredOption, options_of


def with_declared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the one parameter whose type is a dataclass of options by these options.

    Typer looks at the signature alone. So the options take the place of that parameter there, and the command is called
    with the dataclass that is made of their values.
    """
    signature = inspect.signature(command, eval_str=True)
    (place,) = (one for one in signature.parameters.values() if is_dataclass(one.annotation))
    arguments: type = place.annotation
    names = [one.name for one in options_of(arguments)]

    @wraps(command)
    def run(**given: Any) -> None:
        given[place.name] = arguments(**{name: given.pop(name) for name in names})
        command(**given)

    parameters: list[Parameter] = []
    for one in signature.parameters.values():
        parameters += _parameters(arguments) if one is place else [one]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameters(arguments: type) -> Iterator[Parameter]:
    for one in options_of(arguments):
        yield Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=_annotation(one))


def _annotation(one: DeclaredOption) -> Any:
    kind: Any = Literal[one.choices] if one.choices else one.kind
    about = typer.Option(one.flag, help=one.help, metavar=one.metavar, envvar=one.variable)
    return Annotated[kind | None if one.default is None else kind, about]
