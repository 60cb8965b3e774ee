"""The layer holds of the package what the functions import, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers/coldstream"
PACKAGE = LAYER / "python/coldstream"
MODULES = {
    ".".join(path.relative_to(LAYER / "python").with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def left_out() -> set[str]:
    """List the modules that the layer's Makefile takes away."""
    words = re.search(r"^LEFT_OUT := ((?:.*\\\n)*.*)$", (LAYER / "Makefile").read_text(), re.MULTILINE)
    assert words is not None
    paths = [PACKAGE / word for word in words[1].replace("\\", " ").split()]
    assert all(path.exists() for path in paths)
    return {name for name, path in MODULES.items() if any(path.is_relative_to(one) for one in paths)}


def imported_by_functions() -> set[str]:
    found = {"coldstream"}
    waiting = sorted((ROOT / "functions").glob("*/app.py"))
    assert waiting
    while waiting:
        for name in set(names(waiting.pop())) - found:
            found.add(name)
            waiting.append(MODULES[name])
    return found


def names(path: Path) -> Iterator[str]:
    """Yield the package's modules that a file imports, wherever in it, with the packages that they are in."""
    for node in ast.walk(ast.parse(path.read_text())):
        imported: list[str] = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in imported:
            parts = name.split(".")
            yield from (parent for end in range(1, len(parts) + 1) if (parent := ".".join(parts[:end])) in MODULES)


def test_nothing_is_left_out_that_a_function_imports() -> None:
    assert not left_out() & imported_by_functions()


def test_everything_is_left_out_that_no_function_imports() -> None:
    assert set(MODULES) - imported_by_functions() == left_out()
