"""Build wheels of the native module into build/native: `make native-wheel`.

coldstream_native-VERSION-cp311-abi3-manylinux_2_N_ARCHITECTURE.whl: for each CPython from 3.11 on, for C libraries from
2.N on, as the module's own symbols say. `make spark-package NATIVE=` takes such a wheel, and so does pip. For another
architecture than this machine's, scripts/cross-rust brings compiler and linker.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from scripts.spark_package import EPOCH, NATIVE_MODULE

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "native"
MANIFEST = ROOT / "native" / "Cargo.toml"

MACHINES = {"x86_64": 62, "aarch64": 183}
"""By architecture, what an ELF file says at byte 18."""

_ELF_MAGIC = b"\x7fELF\x02\x01"  # of 64 bits, little-endian
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)\0")
_NAME = "coldstream_native"


def build(architecture: str) -> Path:
    """Build the module for an architecture, and return its file. Exits if that is impossible here."""
    target = f"{architecture}-unknown-linux-gnu"
    environment = {"CARGO_TARGET_DIR": str(ROOT / ".cache" / "native"), **os.environ}
    if architecture != platform.machine():
        environment |= _cross(target)
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--target", target]
    if subprocess.run([*command, "--manifest-path", MANIFEST], env=environment, check=False).returncode:
        sys.exit(f"the native module could not be built for {architecture}")
    return Path(environment["CARGO_TARGET_DIR"], target, "release", "lib_coldstream_native.so")


def platform_tag(module: bytes, architecture: str) -> str:
    """Return the tag of the platforms that a module runs on. Exits if it is for another architecture."""
    machine = int.from_bytes(module[18:20], "little")
    if not module.startswith(_ELF_MAGIC) or machine != MACHINES[architecture]:
        sys.exit(f"what was built is not for {architecture}: machine {machine}")
    newest = max(int(version) for version in _GLIBC.findall(module))
    return f"manylinux_2_{newest}_{architecture}"


def write_wheel(module: Path, architecture: str, directory: Path) -> Path:
    """Write a module's wheel, the same bytes for the same module; return its path."""
    content = module.read_bytes()
    version = tomllib.loads(MANIFEST.read_text())["package"]["version"]
    tag = f"cp311-abi3-{platform_tag(content, architecture)}"
    info = f"{_NAME}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: coldstream-native\nVersion: {version}\nRequires-Python: >=3.11\n"
    wheel = f"Wheel-Version: 1.0\nGenerator: coldstream\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {
        NATIVE_MODULE: content,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": wheel.encode(),
    }
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{_NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and print the files; return the exit code."""
    parser = argparse.ArgumentParser(description="Build wheels of the native module.")
    parser.add_argument("architectures", nargs="*", metavar="ARCHITECTURE", help="x86_64, aarch64; default: both")
    options = parser.parse_args(arguments)
    if unknown := set(options.architectures) - MACHINES.keys():
        parser.error(f"{unknown.pop()!r} is not one of {', '.join(MACHINES)}")
    for architecture in options.architectures or MACHINES:
        print(f"building the native module for {architecture}", file=sys.stderr)
        print(write_wheel(build(architecture), architecture, BUILD))
    return 0


def _cross(target: str) -> Mapping[str, str]:
    """Return the variables by which cargo builds for another target. Exits if its compiler is not to be had."""
    architecture = target.partition("-")[0]
    variables = {f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER": f"{architecture}-linux-gnu-gcc"}
    libraries = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", target], capture_output=True, text=True, check=True
    ).stdout.strip()
    if Path(libraries).is_dir():  # rustup's target is installed
        return variables
    if architecture != "aarch64" or subprocess.run([ROOT / "scripts" / "cross-rust"], check=False).returncode:
        sys.exit(f"there is no compiler for {architecture}: rustup target add {target}")
    return variables | {"RUSTC": str(ROOT / ".cache" / "cross" / "rustc")}


def _record(files: Mapping[str, bytes], itself: str) -> bytes:
    lines = [
        f"{name},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    return "\n".join([*lines, f"{itself},,", ""]).encode()


if __name__ == "__main__":
    sys.exit(main())
