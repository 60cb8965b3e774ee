"""Write a build's bill of materials in CycloneDX: each third-party package with its version and hashes.

`make sbom` writes one for each build into build/sbom. `make spark-package`, `make sam-build` and `make wheel` put
theirs beside or into what they build. A bill follows from the pins alone, so it is the same each time. The hashes are
those of all files of a version, one of which was installed. Packages that Linux does not need are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

import coldstream

ROOT = Path(__file__).parents[1]
BUILDS = {
    "agent": ROOT / "requirements-agent.txt",
    "gateway": ROOT / "requirements-gateway.txt",
    "layer": ROOT / "layers/coldstream/python/requirements.txt",
    "spark": ROOT / "requirements-spark.txt",
}
TOOL = ROOT / ".venv-tools/bin/cyclonedx-py"
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "python_full_version": "3.11.0"}


def find_tool() -> Path | None:
    """Return cyclonedx-py, or None if `make tools` has not installed it."""
    return TOOL if (TOOL.parents[1] / ".ready").is_file() else None


def pinned(requirements: Path) -> Iterator[str]:
    """Yield the pins of a file that apply to Linux, each with its hashes on one line."""
    for line in requirements.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if not line.startswith("#"):
            marker = Requirement(line.partition("--hash")[0]).marker
            if marker is None or marker.evaluate(LINUX):
                yield line


def write_sbom(build: str, target: Path) -> None:
    """Write the bill of materials of a build."""
    options = ["--of", "JSON", "--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml"), "-"]
    result = subprocess.run(
        [TOOL, "requirements", *options],
        input="\n".join(pinned(BUILDS[build])),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},  # it warns that a list of pins has no dependency graph
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    document = json.loads(result.stdout)
    document["metadata"]["component"]["version"] = coldstream.__version__  # pyproject.toml does not have it
    for component in document["components"]:
        del component["description"]  # it only repeats the pin
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one bill, or all; return the exit code."""
    parser = argparse.ArgumentParser(description="Write a build's bill of materials in CycloneDX.")
    parser.add_argument("build", nargs="?", choices=BUILDS, help="default: all")
    parser.add_argument("--to", type=Path, metavar="FILE", help="default: build/sbom/BUILD.cdx.json")
    options = parser.parse_args(arguments)
    if options.to is not None and options.build is None:
        parser.error("--to is for one build")
    if find_tool() is None:
        parser.exit(1, "cyclonedx-py is missing: run `make tools`\n")
    for build in [options.build] if options.build else BUILDS:
        target = options.to or ROOT / f"build/sbom/{build}.cdx.json"
        write_sbom(build, target)
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
