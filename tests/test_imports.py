"""Imports go one way: errors, units <- format <- manifest <- store <- archive | serve <- runtime <- functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "layers/coldstream/python/coldstream"

BASE = {"errors", "units"}
MAY_IMPORT = {
    "errors": set[str](),
    "units": set[str](),
    "extras": {"errors"},
    "__main__": {"extras", "cli"},
    "format": BASE,
    "manifest": BASE | {"format"},
    "store": BASE | {"format", "manifest"},
    "archive": BASE | {"format", "manifest", "store"},
    "serve": BASE | {"format", "manifest", "store"},
    "compact": BASE | {"format", "manifest", "store"},
    "runtime": BASE | {"format", "manifest", "store", "archive", "serve"},
    "live": BASE | {"format", "manifest"},
    "consumer": BASE | {"format", "manifest", "store", "serve", "live"},
    "rows": BASE | {"format"},
    "replay": BASE | {"format", "manifest", "store", "serve", "live", "rows"},
}
EDGE = {"agent", "cli", "local"}
"""They take what they need, and nothing takes from them."""

PURE = ("format", "manifest")
NOT_PURE = {"boto3", "botocore", "pynamodb", "aws_lambda_powertools", "os", "time", "logging", "urllib3", "socket"}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if top != "__init__":
            yield top, path


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module or ""


@pytest.mark.parametrize(("package", "path"), list(modules()), ids=lambda value: str(value).removeprefix(f"{PACKAGE}/"))
def test_a_module_imports_only_from_the_packages_below_it(package: str, path: Path) -> None:
    taken = {name.split(".")[1] for name in imported(path) if name.startswith("coldstream.")}
    if package in EDGE:
        assert "cli" not in taken - {package}
    else:
        assert taken - {package} <= MAY_IMPORT[package]


@pytest.mark.parametrize(
    "path", [path for package, path in modules() if package in PURE], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_format_and_manifest_know_no_aws_clock_environment_or_log(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & NOT_PURE


@pytest.mark.parametrize(
    "path",
    [path for package, path in modules() if package not in {"store", *EDGE}],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_only_store_knows_the_sdk_of_aws(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & {"boto3", "botocore", "pynamodb"}


def test_functions_import_no_sibling() -> None:
    functions = {path.parent.name for path in (ROOT / "functions").glob("*/app.py")}
    assert functions
    for path in (ROOT / "functions").rglob("*.py"):
        assert not {name.split(".")[0] for name in imported(path)} & (functions | {"functions", "app"}), path
