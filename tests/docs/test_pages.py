"""What the pages say of files, sections and commands is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from coldstream.cli.arguments import ANYWHERE, arrange
from coldstream.cli.main import app

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers/coldstream/python/coldstream"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/golden/README.md"]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
WIDTH = 120
GENERATED = {ROOT / "docs/benchmarks.md"}
"""Pages whose notes are as long as their figures make them."""

WRAPPED = [page for page in PAGES if page not in GENERATED]

LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")
NAME = re.compile(r"`([\w./-]+)`")
TYPED = re.compile(r"^    (?:\S*/)?coldstream (\S[^#\n]*)", re.MULTILINE)
NAMED = re.compile(r"`coldstream (\S[^`\n]*)`")

NOT_OURS = {"functions/NAME/app.py", "cli/NAME.py", "events/NAME.json"}
"""Files that a page tells people to make."""

HELP = {"-h", "--help", "--install-completion"}


def headings(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Name the sections of a page as its links do."""
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings(page)}


def commands(page: Path) -> Iterator[str]:
    text = page.read_text().replace("\\\n", " ")
    yield from (match.strip() for pattern in (TYPED, NAMED) for match in pattern.findall(text))


def unknown_words(command: str) -> list[str]:
    """Return what a command line has that the program does not: its command, or options of that."""
    program = get_command(app)
    words = [word for word in arrange(shlex.split(command), program.commands, {}.get) if word not in ANYWHERE]
    here = program
    while words and words[0] in getattr(here, "commands", {}):
        here = here.commands[words.pop(0)]
    if here is program and words and not words[0].startswith("-"):
        return [command]
    known = HELP | {name for parameter in here.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    return [option for option in options if option not in known]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} is not there"
        assert not anchor or anchor in anchors(target), f"{path} has no section #{anchor}"


def missing_files(text: str) -> list[str]:
    """Return what a text names between backticks that looks like a file of the repository, and is none.

    A path is one from the root, of the package, or of spark/. Names of objects, and of what is built, are no such.
    """
    bases = (ROOT, PACKAGE, PACKAGE.parent, ROOT / "spark")
    tops = {path.name for path in (*ROOT.iterdir(), *PACKAGE.iterdir()) if path.is_dir() and path.name[0] != "."}
    named = [
        name
        for name in NAME.findall(text)
        if name.endswith((".py", ".md")) or (name.partition("/")[0] in tops - {"build", "dist"} and "/" in name)
    ]
    return [name for name in named if name not in NOT_OURS and not any((base / name).exists() for base in bases)]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_that_are_named_are_there(page: Path) -> None:
    assert missing_files(page.read_text()) == []


def test_a_file_that_is_not_there_is_found() -> None:
    text = "`archive/upload.py`, `archive/nowhere.py`, `tests/archive/test_histories.py`, `tests/none`, `a/b`, `.json`"
    assert missing_files(text) == ["archive/nowhere.py", "tests/none"]


@pytest.mark.parametrize("page", WRAPPED, ids=[str(page.relative_to(ROOT)) for page in WRAPPED])
def test_pages_wrap_at_one_width(page: Path) -> None:
    prose = [line for line in prose_lines(page.read_text()) if "](" not in line]
    assert [line for line in prose if len(line) > WIDTH] == []


def prose_lines(text: str) -> list[str]:
    """Return the lines of a page without its code, tables and headings: what wraps."""
    fenced = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in fenced.splitlines() if not line.startswith(("|", "#"))]
    return [line for line in lines if not line.startswith(" " * 4)]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_have_the_options_that_they_are_shown_with(page: Path) -> None:
    assert {command: wrong for command in commands(page) if (wrong := unknown_words(command))} == {}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_nothing_is_said_twice(page: Path) -> None:
    """Sections and lists that several people add to at once are merged with care."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("- ") and len(line) > 20]
    sections = [heading for heading in headings(page) if page.name != "CHANGELOG.md"]
    assert sorted(set(lines)) == sorted(lines)
    assert sorted(set(sections)) == sorted(sections)


def test_decisions_are_in_the_order_of_their_dates() -> None:
    dates = [heading[:10] for heading in headings(ROOT / "docs" / "decisions.md")[1:]]
    assert dates == sorted(dates)


def test_an_option_that_is_not_there_is_found() -> None:
    assert unknown_words("resolve orders --from 5") == ["--from"]
    assert unknown_words("resolve orders -1h --precise --debug") == []
    assert unknown_words("frobnicate orders") == ["frobnicate orders"]
