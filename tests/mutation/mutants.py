"""Small mistakes put into a module, one at a time: what a test suite is held against.

A mutant is named by its place in the code, `coldstream.format.chunk:ChunkHeader.from_bytes:compare:3`: module,
function, kind, and the how many-th of that kind there. So a change elsewhere leaves its name, and what is known of it.

Left out is what no test should mind: docstrings, annotations, `__slots__`, and the words of errors and schemas.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Change = Callable[[ast.AST], ast.AST | None]
"""Returns what stands in the place of a copy of a node; None for nothing."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake: `node` counts the nodes of the tree up to the one that is changed, `change` the changes of that."""

    name: str
    line: int
    told: str
    node: int
    change: int


_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}


def _compare(node: ast.Compare) -> Iterator[tuple[str, Change]]:
    for at, operator in enumerate(node.ops):
        yield "compare", _with_operator(at, _COMPARED[type(operator)]())


def _with_operator(at: int, operator: ast.cmpop) -> Change:
    def change(node: Any) -> ast.AST:
        node.ops[at] = operator
        return node  # type: ignore[no-any-return]

    return change


def _set(name: str, value: Any) -> Change:
    def change(node: ast.AST) -> ast.AST:
        setattr(node, name, value)
        return node

    return change


def _compute(node: ast.BinOp | ast.AugAssign) -> Iterator[tuple[str, Change]]:
    if type(node.op) in _COMPUTED:
        yield "compute", _set("op", _COMPUTED[type(node.op)]())


def _join(node: ast.BoolOp) -> Iterator[tuple[str, Change]]:
    yield "join", _set("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for at in range(len(node.values)):
        yield "join", lambda found, at=at: _without(found, at)  # type: ignore[misc]  # a default of a lambda


def _without(node: Any, at: int) -> ast.AST:
    del node.values[at]
    return node if len(node.values) > 1 else node.values[0]  # type: ignore[no-any-return]


def _negate(node: ast.UnaryOp) -> Iterator[tuple[str, Change]]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield "negate", lambda found: found.operand  # type: ignore[attr-defined]


def _constant(node: ast.Constant) -> Iterator[tuple[str, Change]]:
    match node.value:
        case bool():
            yield "constant", _set("value", not node.value)
        case int():
            yield "constant", _set("value", node.value + 1)
        case str() if node.value:
            yield "constant", _set("value", f"{node.value}~")
        case bytes() if node.value:
            yield "constant", _set("value", node.value + b"~")
        case None:
            yield "constant", _set("value", 1)
        case _:
            return


def _condition(node: ast.If | ast.IfExp | ast.While) -> Iterator[tuple[str, Change]]:
    if not isinstance(node, ast.While):
        yield "condition", _set("test", ast.Constant(value=True))
    yield "condition", _set("test", ast.Constant(value=False))


def _statement(node: ast.stmt) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Raise() | ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Delete():
            yield "statement", lambda _: ast.Pass()
        case ast.Return(value=ast.expr()) if not _is_none(node.value):
            yield "statement", _set("value", ast.Constant(value=None))
        case ast.Break() | ast.Continue():
            other = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
            yield "statement", lambda _: other
        case _:
            return


def _slice(node: ast.Slice) -> Iterator[tuple[str, Change]]:
    for name in ("lower", "upper", "step"):
        if getattr(node, name) is not None:
            yield "slice", _set(name, None)


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


_KINDS: tuple[tuple[tuple[type[ast.AST], ...], Callable[[Any], Iterator[tuple[str, Change]]]], ...] = (
    ((ast.Compare,), _compare),
    ((ast.BinOp, ast.AugAssign), _compute),
    ((ast.BoolOp,), _join),
    ((ast.UnaryOp,), _negate),
    ((ast.Constant,), _constant),
    ((ast.If, ast.IfExp, ast.While), _condition),
    ((ast.Slice,), _slice),
    ((ast.stmt,), _statement),
)


def _changes(node: ast.AST) -> list[tuple[str, Change]]:
    return [change for kinds, changes in _KINDS if isinstance(node, kinds) for change in changes(node)]


class _Walk(ast.NodeVisitor):
    """Numbers the nodes that may be changed, in order, with the function that each is in."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, str]] = []
        self._place: list[str] = []

    def visit(self, node: ast.AST) -> None:
        if _is_left_out(node):
            return
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._within(node)
            case ast.Module():
                self._body(node.body)
            case ast.AnnAssign():
                if node.value is not None:
                    self.visit(node.value)
            case ast.Raise():
                self._note(node)  # which error it is counts, and whether it comes; its words do not
            case _:
                self._note(node)
                self.generic_visit(node)

    def _within(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """Go through a function or a class, without annotations and decorators."""
        self._place.append(node.name)
        if not isinstance(node, ast.ClassDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
        self._body(node.body)
        self._place.pop()

    def _note(self, node: ast.AST) -> None:
        self.found.append((node, ".".join(self._place)))

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            # Texts that stand alone say what something is.
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                self.visit(statement)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case ast.JoinedStr():  # words, and how numbers are shown in them
            return True
        case (
            ast.Import()
            | ast.ImportFrom()
            | ast.Assert()
            | ast.keyword(arg="help" | "metavar" | "thread_name_prefix" | "description" | "examples")
        ):
            return True
        case ast.Call(func=ast.Name(id="NewType" | "TypeVar" | "cast")) | ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Yield the mutants of a module, in the order of its lines."""
    counted: Counter[tuple[str, str]] = Counter()
    for number, (node, place) in enumerate(_walked(ast.parse(source))):
        for at, (kind, change) in enumerate(_changes(node)):
            counted[place, kind] += 1
            changed = change(copy.deepcopy(node))
            told = f"{_text(node)}  ->  {'' if changed is None else _text(changed)}"
            name = f"{module}:{place}:{kind}:{counted[place, kind]}"
            yield Mutant(name, getattr(node, "lineno", 0), told, number, at)


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """Return the tree of a module with a mistake in it."""
    tree = ast.parse(source)
    node, _ = _walked(tree)[mutant.node]
    _, change = _changes(node)[mutant.change]
    new = change(copy.deepcopy(node))
    assert new is not None

    class Replace(ast.NodeTransformer):
        def visit(self, found: ast.AST) -> ast.AST:
            return ast.copy_location(new, found) if found is node else self.generic_visit(found)

    return ast.fix_missing_locations(Replace().visit(tree))


def _walked(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    walk = _Walk()
    walk.visit(tree)
    return walk.found


def _text(node: ast.AST) -> str:
    first = ast.unparse(node).splitlines()
    return first[0][:100] if first else ""
