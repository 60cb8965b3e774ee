"""The native module is built where Rust is; everywhere else that is said, and nothing fails."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from coldstream.format.native import CONTRACT
from scripts.spark_package import NATIVE_MODULE, add_native

ROOT = Path(__file__).parents[2]
NEEDED = ("bash", "dirname", "mktemp", "rm", "tail")


def test_without_rust_it_says_so_and_succeeds(tmp_path: Path) -> None:
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    run = subprocess.run(
        [tmp_path / "bash", ROOT / "scripts/build-native", tmp_path / "venv"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Rust is missing" in run.stderr
    assert "decoded in Python" in run.stderr
    assert not (tmp_path / "venv").exists()


def test_without_rust_the_layer_goes_without_and_the_module_of_an_earlier_build_is_gone(tmp_path: Path) -> None:
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    scripts, layer = tmp_path / "project/scripts", tmp_path / "project/layers/coldstream"
    for directory in (scripts, layer):
        directory.mkdir(parents=True)
    shutil.copy(ROOT / "scripts/layer-native", scripts)
    (layer / NATIVE_MODULE).write_bytes(b"an earlier one")
    run = subprocess.run(
        [tmp_path / "bash", scripts / "layer-native"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Rust is missing" in run.stderr
    assert "the layer goes without the native module" in run.stderr
    assert not (layer / NATIVE_MODULE).exists()


def test_the_crate_forbids_unsafe_code_and_pins_everything() -> None:
    manifest = tomllib.loads((ROOT / "native/Cargo.toml").read_text())
    assert manifest["lints"]["rust"]["unsafe_code"] == "forbid"
    assert manifest["lints"]["clippy"]["indexing_slicing"] == "deny"
    locked = tomllib.loads((ROOT / "native/Cargo.lock").read_text())["package"]
    assert manifest["dependencies"].keys() <= {package["name"] for package in locked}
    assert {package["name"] for package in locked if "checksum" not in package} == {manifest["package"]["name"]}


def test_both_sides_name_one_contract() -> None:
    assert f"const CONTRACT: u32 = {CONTRACT};" in (ROOT / "native/src/lib.rs").read_text()


def test_spark_gets_the_module_itself_or_out_of_a_wheel(tmp_path: Path) -> None:
    module = tmp_path / NATIVE_MODULE
    module.write_bytes(b"module")
    wheel = Path(shutil.make_archive(str(tmp_path / "some"), "zip", tmp_path, NATIVE_MODULE))
    for number, file in enumerate((module, wheel)):
        target = tmp_path / str(number)
        target.mkdir()
        add_native(file, target)
        assert (target / NATIVE_MODULE).read_bytes() == b"module"
    other = tmp_path / "other.so"
    other.write_bytes(b"x")
    with pytest.raises(SystemExit, match="neither"):
        add_native(other, tmp_path)
