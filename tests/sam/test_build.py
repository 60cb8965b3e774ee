"""`sam validate` and `sam build`: the template is valid, and its build can run on Lambda."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.sam import EVENTS, REGION, TEMPLATE, SamLocal

MIB = 1 << 20
LAMBDA_BYTES = 250 * MIB
"""Lambda's quota of a function with its layers, unpacked."""

LAYER_BYTES = 60 * MIB
"""Our own limit, because the layer is unpacked at each cold start. Above it, somebody should ask why."""


def test_sam_validates_and_lints_the_template(sam: SamLocal) -> None:
    done = sam.run("validate", "--lint", "--template", str(TEMPLATE), "--region", REGION, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_function_is_built_from_its_handler_alone(sam: SamLocal) -> None:
    for function in EVENTS.keys() - {"ConsoleFunction"}:
        assert [path.name for path in (sam.directory / function).iterdir()] == ["app.py"]


def test_the_console_is_built_with_what_only_it_needs(sam: SamLocal) -> None:
    names = {path.name for path in (sam.directory / "ConsoleFunction").iterdir()}
    assert {"app.py", "jinja2", "mangum", "starlette"} <= names
    assert not {"boto3", "pydantic", "coldstream"} & names


def test_the_layer_is_small(sam: SamLocal) -> None:
    files = [path for path in (sam.directory / "Layer").rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < LAYER_BYTES < LAMBDA_BYTES


def test_everything_in_the_layer_is_compiled(sam: SamLocal) -> None:
    layer = sam.directory / "Layer/python"
    sources = [path for path in layer.rglob("*.py") if "templates" not in path.parts]
    assert sources
    missing = [path for path in sources if not (path.parent / f"__pycache__/{path.stem}.cpython-311.pyc").exists()]
    assert not missing


def test_no_library_of_the_layer_wants_a_newer_c_library_than_lambda_has(sam: SamLocal) -> None:
    libraries = list((sam.directory / "Layer").rglob("*.so"))
    assert libraries
    for library in libraries:
        wanted = subprocess.run(
            ["grep", "-aoE", r"GLIBC_2\.[0-9]+", library], capture_output=True, text=True, check=True
        )
        versions = {int(line.rpartition(".")[2]) for line in wanted.stdout.splitlines()}
        assert max(versions) <= 26, library  # of Amazon Linux 2, which python3.11 is on


@pytest.mark.parametrize("module", ["boto3", "coldstream.errors", "pynamodb"])
def test_the_layer_has(sam: SamLocal, module: str) -> None:
    path = sam.directory / "Layer/python" / module.replace(".", "/")
    assert path.exists() or path.with_suffix(".py").exists()
