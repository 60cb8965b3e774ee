"""Run all long checks within some hours, and write their figures to docs/proof.md: python -m tests.prove --hours 8

Each part has its share of the time, and prints as it goes; what it writes is kept in build/prove. A part that finds
something fails, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.prove.figures import PAGE, Outcome, table, written
from tests.prove.parts import PARTS, ProofPart, Task

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/prove"


def main() -> None:
    """Run all parts, or some. Ends with 1 if one of them found something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [part.name for part in PARTS]
    parser.add_argument(
        "parts", nargs="*", choices=[*names, []], metavar="PART", help=f"all without any: {', '.join(names)}"
    )
    parser.add_argument("--hours", type=float, default=8, help="for all together (8)")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="of the first play")
    parser.add_argument("--dry", action="store_true", help="leave docs/proof.md as it is")
    options = parser.parse_args()
    parts = [part for part in PARTS if not options.parts or part.name in options.parts]
    weight = sum(part.share for part in parts)
    BUILD.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for part in parts:
        hours = options.hours * part.share / weight
        _tell(f"{part.name}: {part.about}, for {hours:.2f} hours, seed {options.seed}")
        outcomes.append(run(part, Task(hours, options.seed, BUILD / f"{part.name}.json")))
    text = table(outcomes, circumstances(options.hours, options.seed))
    _tell(text)
    if not options.dry:
        PAGE.write_text(written(PAGE.read_text(), text))
    failed = [one.name for one in outcomes if one.failed]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(part: ProofPart, task: Task) -> Outcome:
    """Run a part to its end, whatever that is."""
    task.figures.unlink(missing_ok=True)
    begun = time.monotonic()
    ended = subprocess.run(
        part.command(task),
        cwd=ROOT,
        env={**os.environ, **part.environment(task)},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    told = json.loads(task.figures.read_text()) if task.figures.exists() else {}
    return Outcome(part.name, {**part.planned(task), **told}, ended.returncode != 0, time.monotonic() - begun)


def circumstances(hours: float, seed: int) -> str:
    """Return when and on what a run was made."""
    day = datetime.now(UTC).date()
    return f"`make prove HOURS={hours:g}` of {day}, seed {seed}, {os.cpu_count()} cores:"


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
