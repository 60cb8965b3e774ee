"""The benchmarks: `python -m bench [names]`. All write docs/benchmarks.md anew, some with --write their sections."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
import traceback
from dataclasses import replace

from bench import report
from bench.harness import CACHE, LAYER, ROOT, CannotMeasureError, Section

PAGE = ROOT / "docs" / "benchmarks.md"

MEASUREMENTS = (
    "upload",
    "encodings",
    "lookups",
    "browsing",
    "reader",
    "decode",
    "coldstart",
    "agent",
    "idle",
    "broker",
    "roll",
    "consumer",
    "scan",
    "compaction",
    "replay",
    "tables",
    "upkeep",
    "scale",
    "sharding",
    "streams",
    "gateway",
)


def main() -> int:
    """Return 0 if all measurements could be made, whether or not their aims were met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure coldstream against plain tools. All measurements write docs/benchmarks.md anew.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"any of {', '.join(MEASUREMENTS)}; default: all",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write those that are named in place of their sections of docs/benchmarks.md",
    )
    options = parser.parse_args()
    names: list[str] = options.names
    if unknown := set(names) - set(MEASUREMENTS):
        parser.error(f"there is no measurement called {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.path.insert(0, str(LAYER))
    began = time.monotonic()
    sections = {name: measure(name) for name in names or MEASUREMENTS}
    report.write_json(CACHE / "benchmarks.json", sections)
    if not names:
        report.write(PAGE, sections, seconds=time.monotonic() - began)
        print(f"wrote {PAGE}")
    elif options.write:
        titles = [section.title for section in sections.values() if isinstance(section, Section)]
        PAGE.write_text(report.updated(PAGE.read_text(), sections))
        print(f"wrote {', '.join(titles) or 'nothing'} into {PAGE}")
    return 1 if any(isinstance(section, str) for section in sections.values()) else 0


def measure(name: str) -> Section | str:
    """Make one measurement and print it. Return the reason instead if it cannot be made."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    before = report.now()
    try:
        section: Section | str = importlib.import_module(f"bench.{name}").measure()
    except CannotMeasureError as err:
        section = str(err)
    except ModuleNotFoundError as err:
        section = f"it needs {err.name}, which is not installed"
    except Exception as err:  # noqa: BLE001  a measurement that breaks must not end the others
        traceback.print_exc()
        section = f"it failed: {type(err).__name__}: {err}"
    if isinstance(section, Section):
        section = replace(section, notes=(*section.notes, report.circumstances(before)))
    print(f"\n{section.title if isinstance(section, Section) else name}\n", *report.describe(section), "", sep="\n")
    return section


if __name__ == "__main__":
    sys.exit(main())
