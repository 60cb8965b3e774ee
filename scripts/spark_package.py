"""Build what `spark-submit` and EMR Serverless need, in build/spark: `make spark-package`.

- the jobs, `*.py`, as they lie in spark/
- coldstream.zip, for --py-files: the packages `coldstream`, `coldstream_spark` and `pyspark_coldstream`
- dependencies.tar.gz, for --archives: the packages that these import, except for Spark itself, in the versions of
  requirements-spark.txt and for EMR's Python 3.11; unpacked, its directory belongs on PYTHONPATH
- sbom.cdx.json: the list of those packages, as CycloneDX

ARCHITECTURE=aarch64 builds for Graviton. NATIVE=FILE puts the native module beside the dependencies: an
`_coldstream_native.abi3.so` that was built for those machines (docs/native.md), or a wheel that holds it. The same
sources and pins give the same bytes. The archive takes about 20 s and downloads 100 MB; `--without-dependencies` leaves
it out.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.sbom import write_sbom

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "spark"
REQUIREMENTS = ROOT / "requirements-spark.txt"
PACKAGES = (
    ROOT / "layers/coldstream/python/coldstream",
    ROOT / "spark/coldstream_spark",
    ROOT / "spark/pyspark_coldstream",
)
LEFT_OUT = (
    *("__main__.py", "agent/", "api/", "browse/", "cli/", "console/", "dispatch/", "gateway/", "ingest/", "jobs/"),
    *("local/", "management/", "operate/", "queues/", "runtime/", "serve/", "shards/", "streams/", "upkeep/", "web/"),
    "worker/",
)
"""Parts of coldstream that no job imports. Some need packages that the archive lacks."""

PYTHON = "3.11"
LIBRARIES = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""Wheels that run on Amazon Linux 2023, whose C library is 2.34."""

NATIVE_MODULE = "_coldstream_native.abi3.so"

EPOCH = (1980, 1, 1, 0, 0, 0)


def sources() -> Iterator[tuple[str, Path]]:
    """Yield the name in the zip and the file of each module."""
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            if not path.relative_to(package).as_posix().startswith(LEFT_OUT):
                yield path.relative_to(package.parent).as_posix(), path


def write_zip(target: Path) -> None:
    """Write coldstream.zip."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, path in sorted(sources()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())


def install(directory: Path, architecture: str) -> None:
    """Install the pinned requirements, as wheels for EMR, into a new directory."""
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "--only-binary", ":all:"]
    options.append("--require-hashes")
    platform = [option for library in LIBRARIES for option in ("--platform", f"{library}_{architecture}")]
    target = ["--target", str(directory), "--implementation", "cp", "--python-version", PYTHON, *platform]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *target, "-r", str(REQUIREMENTS)], check=True)
    # Both hold paths of this machine, and would differ from build to build.
    shutil.rmtree(directory / "bin", ignore_errors=True)
    for record in directory.glob("*.dist-info/RECORD"):
        record.unlink()


def add_native(file: Path, directory: Path) -> None:
    """Put the native module into a directory, out of a wheel unless it is the module itself. Exits if it is neither."""
    target = directory / NATIVE_MODULE
    if not zipfile.is_zipfile(file):
        if file.name != NATIVE_MODULE:
            sys.exit(f"{file} is neither {NATIVE_MODULE} nor a wheel that holds it")
        shutil.copyfile(file, target)
        return
    with zipfile.ZipFile(file) as wheel:
        if NATIVE_MODULE not in wheel.namelist():
            sys.exit(f"the wheel {file} does not hold {NATIVE_MODULE}")
        target.write_bytes(wheel.read(NATIVE_MODULE))


def write_tar(target: Path, directory: Path) -> None:
    """Pack the content of a directory as a tar.gz, with the same bytes for the same content."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path in sorted(directory.rglob("*")):
            archive.add(path, path.relative_to(directory).as_posix(), recursive=False, filter=plain)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and print the files; return the exit code."""
    parser = argparse.ArgumentParser(description="Build what spark-submit and EMR Serverless need.")
    parser.add_argument("--architecture", default="x86_64", choices=["x86_64", "aarch64"], help="of EMR's machines")
    parser.add_argument("--without-dependencies", action="store_true", help="leave out dependencies.tar.gz")
    parser.add_argument("--native", type=Path, metavar="FILE", help="the native module, built for those machines")
    parser.add_argument("--to", type=Path, default=BUILD, metavar="DIRECTORY")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.to, ignore_errors=True)
    options.to.mkdir(parents=True)
    for script in sorted((ROOT / "spark").glob("*.py")):
        shutil.copyfile(script, options.to / script.name)
    write_zip(options.to / "coldstream.zip")
    if not options.without_dependencies:
        print(f"packing the dependencies for {options.architecture}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as directory:
            install(Path(directory, "dependencies"), options.architecture)
            if options.native is not None:
                add_native(options.native, Path(directory, "dependencies"))
            write_tar(options.to / "dependencies.tar.gz", Path(directory, "dependencies"))
        write_sbom("spark", options.to / "sbom.cdx.json")
    for path in sorted(options.to.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
