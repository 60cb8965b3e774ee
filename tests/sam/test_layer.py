"""The layer holds what the functions import, of the package and of others, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.sam import SamLocal

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers/coldstream"
PACKAGE = LAYER / "python/coldstream"
MODULES = {
    ".".join(path.relative_to(LAYER / "python").with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
NOT_PINNED = {
    "_coldstream_native",  # it is built here, or missing: Python does the same
    "mypy_boto3_s3",  # for types only
}


def paths_left_out() -> list[Path]:
    """List the paths that the layer's Makefile removes."""
    words = re.search(r"^LEFT_OUT := (.*)$", (LAYER / "Makefile").read_text(), re.MULTILINE)
    assert words is not None
    paths = [PACKAGE / word for word in words[1].split()]
    assert all(path.exists() for path in paths)
    return paths


def left_out() -> set[str]:
    """List the modules that the layer's Makefile removes."""
    return {name for name, path in MODULES.items() if any(path.is_relative_to(one) for one in paths_left_out())}


def handlers() -> list[Path]:
    found = sorted((ROOT / "functions").glob("*/app.py"))
    assert found
    return found


@cache  # it parses all of them
def imported_by_functions() -> set[str]:
    """List the package's modules that functions import, directly or not, with their packages."""
    found = {"coldstream"}
    waiting = handlers()
    while waiting:
        for name in imports(waiting.pop()):
            parts = name.split(".")
            parents = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
            waiting += [MODULES[parent] for parent in parents & MODULES.keys() - found]
            found |= parents & MODULES.keys()
    return found


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports, wherever in it: modules, and names that may be modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]


def packages_of_others() -> set[str]:
    """List the third-party packages that functions import, directly or not."""
    sources = [*handlers(), *(MODULES[name] for name in imported_by_functions())]
    roots = {name.partition(".")[0] for path in sources for name in imports(path)}
    return roots - sys.stdlib_module_names - {"coldstream"}


def test_nothing_is_left_out_that_a_function_imports() -> None:
    assert not left_out() & imported_by_functions()


def test_every_package_that_no_function_imports_is_left_out() -> None:
    packages = {name: path.parent for name, path in MODULES.items() if path.name == "__init__.py"}
    used = {path for name, path in packages.items() if any(one.startswith(name) for one in imported_by_functions())}
    left = {path for path in packages.values() if path not in used and path.parent in used}
    assert {PACKAGE / "__main__.py", *left} == set(paths_left_out())


def test_the_built_layer_has_all_modules_but_those_left_out(sam: SamLocal) -> None:
    packages = sam.directory / "Layer/python"
    built = {str(path.relative_to(packages)) for path in (packages / "coldstream").rglob("*.py")}
    assert built == {str(MODULES[name].relative_to(LAYER / "python")) for name in MODULES.keys() - left_out()}


def test_every_package_that_the_project_needs_is_one_that_functions_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split("[<>=]", requirement)[0].replace("-", "_") for requirement in project["dependencies"]}
    assert needed <= packages_of_others()


def pinned(path: Path) -> set[str]:
    """List the packages of a file of pins, by the names that they are imported by."""
    return {name.replace("-", "_") for name in re.findall(r"^([a-z0-9_-]+)==", path.read_text(), re.MULTILINE)}


def test_every_package_that_functions_import_is_pinned_for_the_layer_or_the_function() -> None:
    of_layer = pinned(LAYER / "python/requirements.txt")
    of_functions = {name for path in (ROOT / "functions").glob("*/requirements.txt") for name in pinned(path)}
    assert packages_of_others() - of_layer - of_functions == NOT_PINNED


def test_what_a_function_brings_itself_is_imported_by_it_alone() -> None:
    """Another function would find it missing only on Lambda."""
    console = ROOT / "functions/console"
    others = [path for path in handlers() if path.parent != console]
    found, waiting = set[str](), list(others)
    while waiting:
        for name in imports(waiting.pop()):
            parts = name.split(".")
            parents = {".".join(parts[:end]) for end in range(1, len(parts) + 1)} & MODULES.keys() - found
            waiting += [MODULES[parent] for parent in parents]
            found |= parents
    roots = {name.partition(".")[0] for path in (*others, *map(MODULES.__getitem__, found)) for name in imports(path)}
    assert not roots & (pinned(console / "requirements.txt") - pinned(LAYER / "python/requirements.txt"))
