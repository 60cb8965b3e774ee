"""The report: docs/benchmarks.md for people, a JSON file in .cache for programs."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.harness import ROOT, Cell, Section

PACKAGES = ("awscrt", "boto3", "botocore", "cramjam", "numpy", "pyarrow", "pynamodb", "pyspark", "rstream", "urllib3")


def write(path: Path, sections: Mapping[str, Section | str], *, seconds: float) -> None:
    """Write the whole report. `sections` are by name; a text in place of a section says why there is none."""
    path.write_text("\n".join(_document(sections, seconds)) + "\n", encoding="utf-8")


def updated(page: str, sections: Mapping[str, Section | str]) -> str:
    """Return a page with sections in place of those of the same title, or at its end. One without figures stays."""
    head, *rest = page.split("\n## ")
    there = {text.partition("\n")[0]: text for text in rest}
    for section in sections.values():
        if isinstance(section, Section):
            there[section.title] = "\n".join([section.title, "", *describe(section), ""])
    return "\n## ".join([head, *there.values()]).rstrip("\n") + "\n"


def now() -> tuple[str, float]:
    """Return the time, for people, and the load of the last minute."""
    return _now(), os.getloadavg()[0]


def circumstances(before: tuple[str, float]) -> str:
    """Say when, of which commit and beside what something was measured. `before` is what `now` said as it began."""
    (began, load), (_, load_after) = before, now()
    return f"Measured {began}, commit {_commit()}; load average of a minute {load:.1f} before, {load_after:.1f} after"


def write_json(path: Path, sections: Mapping[str, Section | str]) -> None:
    """Write the figures, not rounded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = {name: asdict(section) for name, section in sections.items() if isinstance(section, Section)}
    document = {"date": _now(), "commit": _commit(), "machine": list(_machine()), "sections": measured}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def describe(section: Section | str) -> Iterator[str]:
    """Yield the lines of a section without its heading."""
    if isinstance(section, str):
        yield f"**Not measured**: {section}"
        return
    yield section.how
    yield ""
    rows = [section.columns, *([_text(cell) for cell in row] for row in section.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(section.columns))]
    for number, row in enumerate(rows):
        yield (
            "| " + " | ".join(_padded(cell, width, left=at == 0) for at, (cell, width) in _columns(row, widths)) + " |"
        )
        if number == 0:
            yield "|" + "|".join("-" * (width + 1) + ("-" if at == 0 else ":") for at, width in enumerate(widths)) + "|"
    if section.notes or section.aims:
        yield ""
    for note in section.notes:
        yield f"- {note}"
    for aim in section.aims:
        yield f"- {'Met' if aim.met else '**Missed**'}: {aim.text}; measured {aim.result}."


def _document(sections: Mapping[str, Section | str], seconds: float) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    yield "`make bench` writes this page, and `python -m bench NAME --write` a section of it: edits are lost. Compare"
    yield "the ratios of different runs, not their figures: both sides of a ratio were measured in the same run, in"
    yield "turns, and each counts with its median run. Sections say when they were measured, and beside which load."
    yield ""
    yield f"- Date: {_now()}, {seconds / 60:.0f} minutes"
    yield f"- Commit: {_commit()}"
    for line in _machine():
        yield f"- {line}"
    for name, section in sections.items():
        yield ""
        yield f"## {section.title if isinstance(section, Section) else name}"
        yield ""
        yield from describe(section)


def _machine() -> Iterator[str]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    yield f"Machine: {os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB; Linux {platform.release()}"
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    yield f"Load average of the last 1, 5 and 15 minutes: {loads}"
    yield f"Python {platform.python_version()}; " + ", ".join(_versions())


def _versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package} not installed"


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _commit() -> str:
    """Return the commit that was measured, and whether files differ from it."""
    describe = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=, with changes"]
    result = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "not known"


def _text(cell: Cell) -> str:
    """Return a figure with three significant digits."""
    if isinstance(cell, float):
        digits = 0 if cell >= 100 else 1 if cell >= 10 else 2
        return f"{cell:,.{digits}f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _columns(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[int, tuple[str, int]]]:
    return enumerate(zip(row, widths, strict=True))


def _padded(cell: str, width: int, *, left: bool) -> str:
    return cell.ljust(width) if left else cell.rjust(width)
