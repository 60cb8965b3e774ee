"""What travels to Spark: complete, and the same each time."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from scripts.spark_package import PACKAGES, REQUIREMENTS, ROOT, main, write_tar, write_zip

SPARK = {"pyspark", "py4j"}
"""Distributions that are Spark's own business."""

IMPORTS_EVERYTHING = """
import importlib, sys, warnings, zipfile

archive = sys.argv[1]
sys.path.insert(0, archive)
names = zipfile.ZipFile(archive).namelist()
for name in names:
    module = importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    assert module.__file__.startswith(archive), f"{name} is {module.__file__}"
print(len(names))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("package") / "spark"
    assert main(["--without-dependencies", "--to", str(directory)]) == 0
    return directory


def distribution_names(requirements: Path) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", requirements.read_text(), re.MULTILINE))


def imported(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body.clear()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_every_job_lies_beside_the_zip(package: Path) -> None:
    scripts = {path.name for path in (ROOT / "spark").glob("*.py")}
    assert scripts
    assert {path.name for path in package.iterdir()} == scripts | {"coldstream.zip"}


def test_every_module_is_imported_out_of_the_zip_and_from_nowhere_else(package: Path) -> None:
    archive = package / "coldstream.zip"
    child = subprocess.run(
        [sys.executable, "-I", "-c", IMPORTS_EVERYTHING, str(archive)], capture_output=True, text=True, check=False
    )
    assert child.stderr == ""
    assert int(child.stdout) == len(zipfile.ZipFile(archive).namelist())


def test_what_modules_and_jobs_import_from_others_is_pinned_for_the_archive_of_dependencies(package: Path) -> None:
    pinned = distribution_names(REQUIREMENTS) | SPARK
    ours = {path.name for path in PACKAGES}
    distributions = metadata.packages_distributions()
    with zipfile.ZipFile(package / "coldstream.zip") as archive:
        archive.extractall(package.parent / "unpacked")
    wanted: dict[str, Path] = {}
    for path in [*(package.parent / "unpacked").rglob("*.py"), *package.glob("*.py")]:
        wanted |= dict.fromkeys(imported(path), path)
    # The native module comes by NATIVE=FILE, or Python does without.
    for name in wanted.keys() - sys.stdlib_module_names - ours - {"_coldstream_native"}:
        provided_by = {found.lower().replace("_", "-") for found in distributions[name]}
        assert provided_by & pinned, f"{wanted[name].name} imports {name}"


def test_spark_itself_is_not_among_the_dependencies() -> None:
    assert not distribution_names(REQUIREMENTS) & SPARK


def test_the_zip_is_the_same_each_time(package: Path, tmp_path: Path) -> None:
    write_zip(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (package / "coldstream.zip").read_bytes()


def test_the_archive_of_dependencies_is_the_same_for_the_same_content(tmp_path: Path) -> None:
    for copy, mode in (("one", 0o600), ("two", 0o640)):
        inside = tmp_path / copy / "package"
        inside.mkdir(parents=True)
        for name in ("a.py", "b.so") if copy == "one" else ("b.so", "a.py"):
            (inside / name).write_text(name)
            (inside / name).chmod(mode)
        write_tar(tmp_path / f"{copy}.tar.gz", tmp_path / copy)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        assert archive.getnames() == ["package", "package/a.py", "package/b.so"]
        assert {entry.mode for entry in archive if entry.isfile()} == {0o644}
