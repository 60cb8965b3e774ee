"""Run all long checks within some hours, and write their figures to docs/proof.md: python -m tests.prove --hours 8

As many parts run at once as there are cores, each for its share of the time, and each prints into a log of its own;
what they write is kept in build/prove. A part that finds something fails, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)), help="so many parts (all cores)")
    options = parser.parse_args()
    parts = [part for part in PARTS if not options.parts or part.name in options.parts]
    BUILD.mkdir(parents=True, exist_ok=True)
    hours = shared_out(parts, options.hours, options.at_once)
    # The longest ones begin first, so that none is left alone for long at the end.
    parts.sort(key=lambda part: -hours[part.name])
    with ThreadPoolExecutor(options.at_once) as pool:
        tasks = [Task(hours[part.name], options.seed, BUILD / f"{part.name}.json") for part in parts]
        outcomes = list(pool.map(run, parts, tasks))
    text = table(outcomes, circumstances(options.hours, options.seed))
    _tell(text)
    if not options.dry:
        PAGE.write_text(written(PAGE.read_text(), text))
    failed = [one.name for one in outcomes if one.failed]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def shared_out(parts: Sequence[ProofPart], hours: float, at_once: int) -> dict[str, float]:
    """Return the hours of each part, by name, if so many run at once: each is done after `hours`."""
    weight = sum(part.share for part in parts)
    return {part.name: min(hours, hours * at_once * part.share / weight) for part in parts}


def run(part: ProofPart, task: Task) -> Outcome:
    """Run a part to its end, whatever that is."""
    task.figures.unlink(missing_ok=True)
    log = task.figures.with_suffix(".log")
    _tell(f"{part.name}: {part.about}, for {task.hours:.2f} hours, seed {task.seed}: {log}")
    begun = time.monotonic()
    with log.open("w") as output:
        ended = subprocess.run(
            part.command(task),
            cwd=ROOT,
            env={**os.environ, **part.environment(task)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    told = json.loads(task.figures.read_text()) if task.figures.exists() else {}
    outcome = Outcome(part.name, {**part.planned(task), **told}, ended.returncode != 0, time.monotonic() - begun)
    _tell(f"{part.name}: {'failed' if outcome.failed else 'nothing found'} after {outcome.elapsed_s:.0f} s")
    return outcome


def circumstances(hours: float, seed: int) -> str:
    """Return when and on what a run was made."""
    day = datetime.now(UTC).date()
    return f"`make prove HOURS={hours:g}` of {day}, seed {seed}, {os.cpu_count()} cores:"


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
