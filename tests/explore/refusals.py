"""Refusals of the shipped code, as a program finds them: each `if` that does nothing but raise an error of a race.

Errors that tell of what somebody typed, of damaged bytes, or of a store that does not answer are none. A refusal is
taken away by the function that has it, compiled anew: what its `if` asks is asked still, and the answer is ignored.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

import coldstream

ROOT = Path(coldstream.__file__).parent

OF_RACES = frozenset({
    "BadSequenceError", "ContradictionError", "ExpiredEpochError", "HeldError", "IdempotencyError", "JobStateError",
    "LeaseLostError", "LostRaceError", "NotClosedError", "ObjectNotFoundError", "StreamClosedError",
    "StreamDeletedError", "StreamNotFoundError",
})  # fmt: skip

OF_BYTES = {
    "BadSequenceError of streams.wal.reader._chunk": "reads bytes back, which tests/faults and tests/fuzz damage"
}
"""Refusals that no schedule needs, and what does."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Refusing(NamedTuple):
    """An `if` that refuses: the function it is in, outermost first, the error, and the how many-th of it there."""

    module: str
    function: tuple[str, ...]
    error: str
    number: int = 1

    def __str__(self) -> str:
        which = f" {self.number}" if self.number > 1 else ""
        return f"{self.error}{which} of {self.module}.{'.'.join(self.function)}"


def refusals(modules: Iterable[str]) -> list[str]:
    """Return the refusals of some modules, by name."""
    found = {str(one) for module in modules for one, _ in _found(module, _tree(module))}
    return sorted(found - OF_BYTES.keys())


def without_refusal(patch: pytest.MonkeyPatch, name: str) -> None:
    """Take one away. Raises ValueError if there is none of that name."""
    place = name.partition(" of ")[2]
    module = next(found for found in _modules_of(place) if (ROOT / f"{found.replace('.', '/')}.py").exists())
    tree = _tree(module)
    for one, node in _found(module, tree):
        if str(one) == name:
            node.test = ast.BoolOp(ast.And(), [node.test, ast.Constant(value=False)])
            ast.fix_missing_locations(tree)
            made = compile(tree, str(ROOT / f"{module.replace('.', '/')}.py"), "exec", dont_inherit=True)
            function, depth = _function(module, one.function)
            patch.setattr(function, "__code__", _code(made, one.function[:depth]))
            return
    raise ValueError(f"nothing is {name}")


def _modules_of(place: str) -> Iterator[str]:
    parts = place.split(".")
    yield from (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())


def _found(module: str, tree: ast.Module) -> Iterator[tuple[Refusing, ast.If]]:
    counted: dict[tuple[tuple[str, ...], str], int] = {}
    for within, node in _walk(tree, ()):
        raised = _raised(node)
        if raised in OF_RACES:
            number = counted[within, raised] = counted.get((within, raised), 0) + 1
            yield Refusing(module, within, raised, number), node


def _walk(node: ast.AST, within: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.If]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If):
            yield within, child
        is_named = isinstance(child, _Function | ast.ClassDef)
        yield from _walk(child, (*within, child.name) if is_named else within)


def _raised(node: ast.If) -> str:
    """Return the error with which the body of an `if` ends, whatever it says before that, "" if with none."""
    last = node.body[-1]
    if not isinstance(last, ast.Raise) or not isinstance(last.exc, ast.Call):
        return ""
    name = last.exc.func
    return name.id if isinstance(name, ast.Name) else ""


def _function(module: str, names: tuple[str, ...]) -> tuple[FunctionType, int]:
    """Return the outermost function that a name is in, and at which place of the name it is."""
    found: Any = import_module(f"coldstream.{module}")
    for depth, name in enumerate(names, 1):
        found = found.__dict__[name]
        found = getattr(found, "__func__", found)  # of a class method
        if isinstance(found, FunctionType):
            return found, depth
    raise ValueError(f"no function is {'.'.join(names)}")


def _code(code: CodeType, names: tuple[str, ...]) -> CodeType:
    for name in names:
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return code
