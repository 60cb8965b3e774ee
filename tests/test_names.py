"""Names and words: one class, one name; and the words that the glossary has no use for."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = [
    *sorted((ROOT / "layers/coldstream/python/coldstream").rglob("*.py")),
    *sorted((ROOT / "spark").rglob("*.py")),
    *sorted((ROOT / "functions").rglob("*.py")),
]

OPENINGS = re.compile(r"(?:^|[.;:]\s+)(Where it|Of which|Of what|Of whom|Archived is)\b")
"""How no sentence begins: with a condition that is no place, or with what belongs to a noun further on."""


def documented(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of a module and all in it, each with what it is of; those of constants, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield f"line {node.lineno}", node.value.value


def test_a_class_name_exists_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:  # not a class in a class: PynamoDB's models each have a Meta
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_sentence_begins_backwards() -> None:
    found = [
        f"{path.relative_to(ROOT)}, {place}"
        for path in SOURCES
        for place, text in documented(ast.parse(path.read_text()))
        if OPENINGS.search(" ".join(text.split()))
    ]
    assert found == []


def test_an_incarnation_is_called_by_its_name() -> None:
    """Not a life: the event, the manifest and the pages say incarnation."""
    found = []
    for path in SOURCES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {node.arg for node in nodes if isinstance(node, ast.arg)}
        names |= {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        found += [f"{path.relative_to(ROOT)}: {name}" for name in names & {"life", "lives"}]
    assert found == []


def test_each_package_says_what_lives_in_it() -> None:
    packages = [path for path in SOURCES if path.name == "__init__.py"]
    silent = [path for path in packages if len((ast.get_docstring(ast.parse(path.read_text())) or "").split()) < 5]
    assert silent == []
