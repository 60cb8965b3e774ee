"""The figures of a run, as a table of docs/proof.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/proof.md"
BEGIN = "<!-- Figures: `make prove` writes what follows. -->\n"
END = "<!-- End of the figures. -->\n"

MOST_SHOWN = 3
"""Of a list: build/prove has all of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part ended. Its figures are numbers or words, or more of them, by what they count or tell."""

    name: str
    figures: Mapping[str, Any]
    failed: bool
    elapsed_s: float


def table(outcomes: Sequence[Outcome], circumstances: str) -> str:
    """Return the table, with what it was run on before it."""
    rows = (
        f"| {one.name} | {_told(one.figures)} | {timedelta(seconds=round(one.elapsed_s))} |"
        f" {'**failed**' if one.failed else 'nothing found'} |"
        for one in outcomes
    )
    return "\n".join([circumstances, "", "| part | figures | time | |", "|---|---|---|---|", *rows, ""])


def written(page: str, text: str) -> str:
    """Return a page with its figures replaced. Raises ValueError if it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for figures: {BEGIN.strip()} … {END.strip()}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def _told(figures: Mapping[str, Any]) -> str:
    return ", ".join(_one(what, value) for what, value in figures.items())


def _one(what: str, value: Any) -> str:
    if isinstance(value, list):
        some = ", ".join(str(one) for one in value[:MOST_SHOWN])
        more = ", …" if len(value) > MOST_SHOWN else ""
        return f"{what} {len(value)}" + (f" ({some}{more})" if some else "")
    if isinstance(value, Mapping):
        return f"{what} ({_told(value)})"
    return f"{what} {value:,}" if isinstance(value, int | float) else f"{what}: {value}"
