"""Fuzz every parser for long: python -m tests.fuzz.prove --hours 4 --runs 10000000

Each target ends after so many inputs, or its share of the time that is left; quick ones come first. An input that fails
goes to tests/fuzz/regressions, and inputs that reach more code than those of before go to tests/fuzz/corpus, with
--keep. Prints a line of figures each.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from base64 import b64encode
from pathlib import Path

from tests.fuzz.campaign import Fuzzed, fuzz
from tests.fuzz.catalogue import TARGETS
from tests.fuzz.corpora import CORPUS, REGRESSIONS, keep, kept
from tests.fuzz.fuzz_target import FuzzTarget

MOST_KEPT_BYTES, MOST_KEPT = 400, 150
"""Of an input, and inputs of a target: what is kept is for the beginning, and a fuzzer finds the rest again."""


def main() -> None:
    """Fuzz all targets, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="all without any")
    parser.add_argument("--hours", type=float, default=4)
    parser.add_argument("--runs", type=int, default=10**7)
    parser.add_argument("--seed", type=int, default=int(time.time()) % (1 << 31) or 1)
    parser.add_argument("--figures", type=Path, help="a file for the figures, as JSON")
    parser.add_argument("--keep", action="store_true", help="keep inputs that reach more")
    options = parser.parse_args()
    targets = sorted((TARGETS[name] for name in options.targets or TARGETS), key=lambda one: one.runs, reverse=True)
    until = time.monotonic() + options.hours * 3600
    _tell(f"{'parser':20}{'inputs':>12}{'a second':>10}{'places':>8}  seed {options.seed}")
    failed, runs = [], []
    for number, target in enumerate(targets):
        seconds = max(1, int((until - time.monotonic()) / (len(targets) - number)))
        (found,) = fuzz([target], [options.runs], seconds=seconds, seed=options.seed)
        runs.append(found.runs)
        _tell(f"{target.name:20}{found.runs:12,}{found.runs_a_second:10,}{found.covered:8}")
        if found.failing is not None:
            failed.append(target.name)
            _note(found)
        elif options.keep:
            _keep(target, found)
    if options.figures:
        figures = {
            "parsers": len(runs),
            "inputs": sum(runs),
            f"parsers that got {options.runs:,}": sum(most >= options.runs for most in runs),
            "the fewest of one": min(runs),
            "failed": len(failed),
        }
        options.figures.write_text(json.dumps(figures))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the inputs are in {REGRESSIONS}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _note(found: Fuzzed) -> None:
    assert found.failing is not None
    _tell(found.told[-6000:])
    with (REGRESSIONS / f"{found.target.name}.txt").open("a") as file:
        file.write(f"{b64encode(found.failing).decode()} tell what it found\n")


def _keep(target: FuzzTarget, found: Fuzzed) -> None:
    # Each of them reached something that none before it did.
    known = sorted({*kept(CORPUS, target.name), *found.inputs}, key=lambda one: (len(one), one))
    keep(target, [one for one in known if len(one) <= MOST_KEPT_BYTES][:MOST_KEPT])


if __name__ == "__main__":
    main()
