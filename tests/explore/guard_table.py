"""The table of guards in docs/proof.md: python -m tests.explore.guard_table writes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.explore.guards import Guards

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/proof.md"
BEGIN = "<!-- Guards: `python -m tests.explore.guard_table` writes what follows. -->\n"
END = "<!-- End of the guards. -->\n"


def lines(*paths: Path) -> list[list[str]]:
    """Return the fields of each line of some files."""
    return [line.split("\t") for path in paths for line in path.read_text().splitlines()]


def shown() -> list[list[str]]:
    """Return each guard, or guards of which one is enough, with a schedule and how it ends without them."""
    return lines(HERE / "shown.tsv", *sorted((HERE / "shown").glob("*.tsv")), HERE / "direct_shown.tsv")


def explained() -> list[list[str]]:
    """Return each guard that no schedule needs, with the test that fails without it, and the reason."""
    return lines(*sorted((HERE / "explained").glob("*.tsv")))


def free() -> list[list[str]]:
    """Return what looks like a guard and is none, with a world that ends well without it."""
    return lines(*sorted((HERE / "free").glob("*.tsv")))


def table() -> str:
    """Return the table, with how many there are before it."""
    found, others = shown(), explained()
    alone = {text for text, *_ in found if " + " not in text}
    paired = {str(one) for text, *_ in found for one in Guards.parse(text).all} - alone
    said = (
        f"{len(alone)} guards have a schedule of their own, {len(paired)} one with another before which they stand, and"
        f" {len(others)} a test elsewhere."
    )
    return "\n".join([said, "", "| without | schedule | ends with |", "|---|---|---|", *_rows(found, others), ""])


def _rows(found: list[list[str]], others: list[list[str]]) -> Iterator[str]:
    for text, schedule, told in sorted(found):
        ending = re.sub(r"\\(.)", r"\1", told).replace("|", " or ")
        yield f"| {_told(text)} | `{schedule}` | {_told(ending)} |"
    for text, test, why in sorted(others):
        yield f"| {_told(text)} | `{test.rpartition('::')[2]}` | {_told(why)} |"


def _told(text: str) -> str:
    return text.replace("_", r"\_").replace("<", r"\<")


def written(page: str) -> str:
    """Return a page with the table anew. Raises ValueError if it has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for guards: {BEGIN.strip()} … {END.strip()}")
    return f"{before}{begin}\n{table()}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.stdout.write(f"{PAGE}\n")
