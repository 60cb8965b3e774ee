"""A fuzzer's run on targets: from their inputs on, until so many runs or so much time, with what was found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.fuzz.corpora import inputs_of, words_of
from tests.fuzz.fuzz_target import FuzzTarget

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-fuzz/bin/python"
TIMEOUT_S = 60
"""Of one input: thousands of times what any takes, so that no busy machine is taken for a slow parser."""

MEMORY_MB = 1024
_RUNS = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_RATE = re.compile(r"stat::average_exec_per_sec:\s+(\d+)")
_COVERED = re.compile(r"cov: (\d+)")


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What a run did. `failing` is the input that ended it, None if nothing did; `told` is its output.

    `covered` counts places of the code, in the fuzzer's own unit. `inputs` are new, and reach different ones.
    """

    target: FuzzTarget
    runs: int
    runs_a_second: int
    covered: int
    failing: bytes | None
    told: str
    inputs: tuple[bytes, ...]


def fuzz(targets: Sequence[FuzzTarget], runs: Sequence[int], *, seconds: int = 0, seed: int = 1) -> list[Fuzzed]:
    """Fuzz targets, so many runs each, one after the other. `seconds`, of each, 0 is without end."""
    with tempfile.TemporaryDirectory() as name:
        places = [Path(name) / str(number) for number in range(len(targets))]
        plan = [
            _prepared(place, target, f"-runs={most}", f"-max_total_time={seconds}", f"-seed={seed}")
            for place, target, most in zip(places, targets, runs, strict=True)
        ]
        _run(Path(name) / "plan", plan)
        return [_found(place, target) for place, target in zip(places, targets, strict=True)]


def _prepared(place: Path, target: FuzzTarget, *flags: str) -> dict[str, object]:
    place.mkdir()
    corpus = _written(place / "corpus", inputs_of(target))
    words = (word.hex(" ").replace(" ", r"\x") for word in words_of(target.seeds()))
    (place / "words").write_text("".join(rf'"\x{word}"' + "\n" for word in words) or '"a word"\n')
    (place / "new").mkdir()
    arguments = [
        *flags,
        f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={place}/found-",
        f"-dict={place}/words",
        "-print_final_stats=1",
        str(place / "new"),  # the first directory is the one that new inputs go to
        str(corpus),
    ]
    return {"target": target.name, "log": str(place / "log"), "arguments": arguments}


def _found(place: Path, target: FuzzTarget) -> Fuzzed:
    told = (place / "log").read_text(errors="replace")
    failing = next(iter(sorted(place.glob("found-*"))), None)
    return Fuzzed(
        target,
        _last(_RUNS, told),
        _last(_RATE, told),
        _last(_COVERED, told),
        None if failing is None else failing.read_bytes(),
        told,
        tuple(path.read_bytes() for path in (place / "new").iterdir()),
    )


def _written(directory: Path, inputs: Collection[bytes]) -> Path:
    directory.mkdir()
    for one in inputs:
        (directory / sha256(one).hexdigest()).write_bytes(one)
    return directory


def _run(path: Path, plan: list[dict[str, object]]) -> None:
    """Run a plan. A target that fails is found by its input; a fuzzer that did not run at all is an error."""
    path.write_text(json.dumps(plan))
    search = os.pathsep.join((str(ROOT / "layers/coldstream/python"), str(ROOT)))
    ended = subprocess.run(
        [str(PYTHON), "-m", "tests.fuzz.fuzzer", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if not all(Path(str(step["log"])).exists() for step in plan):
        raise RuntimeError(f"the fuzzer did not run: {ended.stderr[-4000:]}")


def _last(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.findall(text)
    return int(found[-1]) if found else 0
