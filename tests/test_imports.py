"""Imports go one way, package by package, and no module imports itself by a detour."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "layers/coldstream/python"
PACKAGE = LIBRARY / "coldstream"

BASE = {"errors", "plain_json", "units", "retry"}
MANIFEST = BASE | {"format", "manifest"}
STORE = MANIFEST | {"store"}
READ = STORE | {"flow", "resolve", "read"}
UPKEEP = {"erase", "garbage", "lifecycle", "operate", "rebuild", "scrub"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "plain_json": set(),
    "units": set(),
    "retry": set(),
    "__main__": {"cli", "terminal"},
    # What functions, edge, clients and jobs share.
    "format": BASE,
    "manifest": BASE | {"format"},
    "store": MANIFEST,
    "flow": BASE | {"format"},
    # Functions.
    "archive": STORE | {"flow"},
    "resolve": STORE,
    "scrub": STORE | {"flow"},
    "runtime": STORE | {"archive", "resolve"},
    "api": STORE | {"browse", "dispatch", "jobs", "resolve", "runtime"},
    # Beside a broker.
    "live": MANIFEST,
    "management": READ,
    "ingest": STORE | {"archive", "flow"},
    "agent": READ | {"archive", "ingest", "live", "management", "web"},
    # Clients.
    "read": STORE | {"flow", "resolve"},
    "consumer": READ | {"groups", "live"},
    "streams": READ | {"archive", "lifecycle"},
    "gateway": READ | {"groups", "live", "streams", "web"},
    # Jobs.
    "rows": BASE | {"format"},
    "lifecycle": STORE | {"flow"},
    "garbage": STORE | {"archive"},
    "compact": STORE | {"terminal", "flow", "lifecycle"},
    "erase": STORE | {"archive", "compact", "flow", "lifecycle"},
    "rebuild": STORE | {"flow"},
    "replay": READ | {"terminal", "live", "routing", "rows"},
    "web": STORE | {"resolve"},
    "console": READ | {"browse", "dispatch", "jobs", "web"},
    "serve": STORE | {"resolve", "streams", "web"},
    "routing": MANIFEST,
    "shards": READ | {"archive", "terminal", "ingest", "live", "management", "queues", "replay", "routing"},
    "groups": STORE | {"flow"},
    "jobs": STORE | {"erase", "flow"},
    "upkeep": STORE | {"flow", "jobs", "compact", "erase", "lifecycle", "scrub"},
    "dispatch": STORE | {"flow", "jobs", "compact", "erase", "lifecycle", "scrub", "upkeep"},
    "queues": READ | {"archive", "ingest"},
    "worker": READ
    | {"agent", "archive", "dispatch", "erase", "ingest", "jobs", "lifecycle", "live", "management", "replay"}
    | {"routing", "rows", "upkeep", "web"},
    # A laptop, and people.
    "operate": STORE | {"agent", "archive", "flow", "garbage", "ingest", "scrub"},
    "browse": READ | {"agent", "lifecycle", "live", "operate", "rows", "scrub"},
    "terminal": BASE,
    "local": MANIFEST | {"terminal"},
    "cli": READ
    | {"jobs"}
    | {"agent", "archive", "compact", "terminal", "consumer", "ingest", "live", "local", "replay"}
    | {
        "browse",
        "console",
        "dispatch",
        "gateway",
        "groups",
        "queues",
        "routing",
        "serve",
        "shards",
        "streams",
        "web",
        "worker",
    }
    | UPKEEP,
}
OUTSIDE = {
    "functions": STORE
    | {"api", "archive", "browse", "console", "dispatch", "flow", "jobs", "resolve", "runtime", "upkeep"}
    | UPKEEP,
    "spark": READ | {"compact", "terminal", "live", "replay", "rows"} | UPKEEP,
    "scripts": set(MAY_IMPORT) - {"api", "cli", "runtime"},
    "bench": set(MAY_IMPORT) - {"api", "cli", "runtime"},
}
"""What is no part of the package, and which parts of the package it may use."""

PURE = ("format", "manifest")
NOT_PURE = {"boto3", "botocore", "pynamodb", "aws_lambda_powertools", "os", "time", "logging", "urllib3", "socket"}

KNOW_THE_SDK = {"store", "dispatch", "ingest", "read", "agent", "local", "operate", "cli"}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if top != "__init__":
            yield top, path


def outside() -> Iterator[tuple[str, Path]]:
    for top in OUTSIDE:
        for path in sorted((ROOT / top).rglob("*.py")):
            yield top, path


def short(value: object) -> str:
    return str(value).removeprefix(f"{PACKAGE}/").removeprefix(f"{ROOT}/")


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports when it runs, wherever in it: modules, and names that may be modules."""
    for node in ast.walk(_without_types(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _without_types(tree: ast.Module) -> ast.Module:
    """Drop `if TYPE_CHECKING:`, which is never run."""
    kept = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))]
    return ast.Module(kept, [])


def packages_of(path: Path) -> set[str]:
    """Name the parts of the package that a file imports."""
    names = {name.split(".")[1] for name in imports(path) if name.startswith("coldstream.")}
    return names & set(MAY_IMPORT)


@pytest.mark.parametrize(("package", "path"), list(modules()), ids=short)
def test_a_module_imports_only_from_the_packages_below_it(package: str, path: Path) -> None:
    assert packages_of(path) - {package} <= MAY_IMPORT[package]


@pytest.mark.parametrize(("top", "path"), list(outside()), ids=short)
def test_what_is_outside_of_the_package_imports_only_what_is_for_it(top: str, path: Path) -> None:
    assert packages_of(path) <= OUTSIDE[top]


def test_every_package_has_a_rule() -> None:
    assert {package for package, _ in modules()} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", [path for package, path in modules() if package in PURE], ids=short)
def test_format_and_manifest_know_no_aws_clock_environment_or_log(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & NOT_PURE


@pytest.mark.parametrize("path", [path for package, path in modules() if package not in KNOW_THE_SDK], ids=short)
def test_only_these_packages_know_the_sdk_of_aws(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"boto3", "botocore", "pynamodb"}


def test_functions_import_no_sibling() -> None:
    functions = {path.parent.name for path in (ROOT / "functions").glob("*/app.py")}
    assert functions
    for path in (ROOT / "functions").rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & (functions | {"functions", "app"}), path


def graph() -> dict[str, set[str]]:
    """Map every module, of the package and outside of it, to those that it imports, also inside of functions."""
    paths: dict[str, Path] = {}
    for base, top in [
        (LIBRARY, PACKAGE),
        (ROOT / "spark", ROOT / "spark"),
        (ROOT, ROOT / "bench"),
        (ROOT, ROOT / "scripts"),
    ]:
        for path in top.rglob("*.py"):
            paths[".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")] = path
    return {name: {taken for taken in imports(path) if taken in paths} - {name} for name, path in paths.items()}


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Find the cycles: whatever is left when modules that import nothing, or only such, are taken away in turn."""
    left = dict(edges)
    while free := {name for name, taken in left.items() if not taken & left.keys()}:
        left = {name: taken for name, taken in left.items() if name not in free}
    # Modules that only import a cycle are no part of it.
    while unused := set(left) - {taken for some in left.values() for taken in some}:
        left = {name: taken for name, taken in left.items() if name not in unused}
    return [[name, *sorted(taken & left.keys())] for name, taken in sorted(left.items())]


def test_no_module_imports_itself_by_a_detour() -> None:
    assert cycles(graph()) == []


def test_a_cycle_hidden_in_a_function_is_found() -> None:
    edges = {"above": {"a"}, "a": {"b"}, "b": {"a", "below"}, "below": set[str]()}
    assert cycles(edges) == [["a", "b"], ["b", "a"]]
