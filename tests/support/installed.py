"""The package as an index would have it, in virtual environments that hold what it declares and nothing else.

Wheel and source distribution are built once. What a wheel requires is linked from the environment that runs the tests,
distribution by distribution, as its metadata asks for it: so nothing is downloaded, and what is used without being
declared is missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
NAME = "coldstream"


def build(directory: Path) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from that; return both."""
    _build("sdist", ROOT, directory)
    (sdist,) = directory.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    _build("wheel", directory / sdist.name.removesuffix(".tar.gz"), directory)
    (wheel,) = directory.glob("*.whl")
    return sdist, wheel


def _build(target: str, source: Path, directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


class Installed:
    """A wheel in a virtual environment, with those of its extras."""

    def __init__(self, directory: Path, wheel: Path, extras: Sequence[str] = ()) -> None:
        self.directory = directory
        venv.create(directory, symlinks=True)
        (self._packages,) = directory.glob("lib/python*/site-packages")
        pip = [sys.executable, "-m", "pip", "--python", str(self._python), "--disable-pip-version-check"]
        install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(wheel)]
        subprocess.run([*pip, *install], check=True, capture_output=True)
        for distribution in _required(self._of_wheel(), set(extras)):
            self._link(distribution)

    @property
    def _python(self) -> Path:
        return self.directory / "bin" / "python"

    def run(
        self, command: str, *arguments: str | Path, env: dict[str, str] | None = None, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, with no variables but `env`, in its directory."""
        return subprocess.run(
            self.line(command, *arguments),
            env=self.variables(env),
            cwd=self.directory,
            timeout=timeout_s,
            check=False,
            capture_output=True,
            text=True,
        )

    def line(self, command: str, *arguments: str | Path) -> list[str]:
        """Return the words of a command of the environment."""
        return [str(self.directory / "bin" / command), *map(str, arguments)]

    def variables(self, env: dict[str, str] | None = None) -> dict[str, str]:
        """Return what a command finds in its environment."""
        return {"PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}", "HOME": str(self.directory)} | (env or {})

    def _of_wheel(self) -> metadata.Distribution:
        (found,) = metadata.distributions(name=NAME, path=[str(self._packages)])
        return found

    def _link(self, distribution: metadata.Distribution) -> None:
        files = distribution.files or []
        for name in {file.parts[0] for file in files if file.parts[0] != ".." and not file.is_absolute()}:
            link = self._packages / name
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(name))))


def _required(distribution: metadata.Distribution, extras: set[str]) -> Iterator[metadata.Distribution]:
    """Yield what a distribution requires, and what that requires. Fails where an installed version will not do."""
    seen: set[tuple[str, str]] = set()
    waiting = [(distribution, extra) for extra in {"", *extras}]
    while waiting:
        asking, extra = waiting.pop()
        for text in asking.requires or []:
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            found = metadata.distribution(wanted.name)
            assert wanted.specifier.contains(found.version, prereleases=True), f"{asking.name} wants {wanted}"
            for further in {"", *wanted.extras}:
                if (key := (canonicalize_name(wanted.name), further)) not in seen:
                    seen.add(key)
                    waiting.append((found, further))
                    yield found


def pip_lines(page: str) -> list[list[str]]:
    """Return the extras that each `pip install` of a page asks for."""
    return [
        [extra for extra in (extras or "").split(",") if extra]
        for extras in re.findall(r"pip install '?coldstream(?:\[([a-z,]+)\])?'?\s", page)
    ]
