"""Wheels of the native module: for the machine that they name, and complete."""

from __future__ import annotations

import csv
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64decode
from hashlib import sha256
from pathlib import Path

import pytest

from coldstream.format.native import NATIVE
from scripts.native_wheel import MACHINES, platform_tag, write_wheel
from scripts.spark_package import NATIVE_MODULE, add_native


def module_for(architecture: str) -> bytes:
    """Return what a module begins with, and the versions of the C library that it names."""
    head = b"\x7fELF\x02\x01" + bytes(12) + MACHINES[architecture].to_bytes(2, "little")
    return head + b"\0GLIBC_2.17\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_2.4\0"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "lib_coldstream_native.so"
    path.write_bytes(module_for("aarch64"))
    return path


def test_the_tag_names_the_newest_c_library_that_the_module_needs() -> None:
    assert platform_tag(module_for("aarch64"), "aarch64") == "manylinux_2_34_aarch64"


@pytest.mark.parametrize("content", [module_for("x86_64"), b"MZ" + module_for("aarch64")[2:]])
def test_a_module_for_another_machine_is_refused(content: bytes) -> None:
    with pytest.raises(SystemExit, match="is not for aarch64"):
        platform_tag(content, "aarch64")


def test_a_wheel_has_its_tags_and_records_every_file(module: Path, tmp_path: Path) -> None:
    path = write_wheel(module, "aarch64", tmp_path)
    assert path.name.endswith("-cp311-abi3-manylinux_2_34_aarch64.whl")
    with zipfile.ZipFile(path) as wheel:
        (info,) = {name.partition("/")[0] for name in wheel.namelist() if "/" in name}
        assert b"Tag: cp311-abi3-manylinux_2_34_aarch64\n" in wheel.read(f"{info}/WHEEL")
        rows = list(csv.reader(wheel.read(f"{info}/RECORD").decode().splitlines()))
        assert {name for name, *_ in rows} == set(wheel.namelist())
        for name, digest, size in rows:
            if digest:
                found = urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
                assert (found, int(size)) == (sha256(wheel.read(name)).digest(), len(wheel.read(name)))


def test_the_same_module_gives_the_same_bytes(module: Path, tmp_path: Path) -> None:
    first, second = (write_wheel(module, "aarch64", tmp_path / name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_spark_gets_the_module_out_of_it(module: Path, tmp_path: Path) -> None:
    target = tmp_path / "dependencies"
    target.mkdir()
    add_native(write_wheel(module, "aarch64", tmp_path), target)
    assert (target / NATIVE_MODULE).read_bytes() == module.read_bytes()


@pytest.mark.skipif(NATIVE is None, reason="the native module is not installed")
def test_pip_installs_it(tmp_path: Path) -> None:
    assert NATIVE is not None
    assert NATIVE.__file__ is not None
    content = Path(NATIVE.__file__).read_bytes()
    (architecture,) = (name for name, number in MACHINES.items() if number == int.from_bytes(content[18:20], "little"))
    wheel = write_wheel(Path(NATIVE.__file__), architecture, tmp_path)
    target = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*command, "--no-deps", "--target", str(target), str(wheel)], check=True)
    again = "import _coldstream_native as found; print(found.__file__, found.CONTRACT)"
    run = subprocess.run(
        [sys.executable, "-c", again], env={"PYTHONPATH": str(target)}, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [str(target / NATIVE_MODULE), str(NATIVE.CONTRACT)]
