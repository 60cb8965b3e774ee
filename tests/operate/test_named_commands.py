"""Every command that the doctor, an alarm, a damage, an error or the operations page names exists, with its options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from coldstream.cli.main import app
from coldstream.operate.alarm_commands import ALARM_COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers/coldstream/python/coldstream"
PAGES = [ROOT / f"docs/{name}.md" for name in ("operations", "scrub", "garbage", "rebuild", "erasure", "retention")]

COMMAND = re.compile(r"(?<![\w/.-])coldstream ([a-z][a-z-]*(?: (?:[\w{}:'./-]+))*)")
AGENT = "agent"
"""A group that is a command, too: its options are declared elsewhere."""


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a module that people may see: no docstrings; what an f-string fills in is `X`."""
    tree = ast.parse(path.read_text())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inner | told):
            yield node.value


@cache
def whole_program() -> Any:
    return get_command(app)


def problem_of(line: str) -> str | None:
    """Return what is wrong with what stands after `coldstream`, None if nothing is."""
    command = whole_program()
    path = ""
    for word in line.split():
        within = getattr(command, "commands", None)  # a group's
        if word.startswith("--"):
            options = {text for one in command.params for text in (*one.opts, *one.secondary_opts)}
            if word not in options and path != AGENT:
                return f"no option {word} in {line!r}"
        elif within is not None and word in within:
            command, path = within[word], f"{path} {word}".strip()
        elif within is not None and path != AGENT:
            return f"no command {word} in {line!r}"
    return None


@pytest.mark.parametrize("package", ["operate", "scrub", "garbage", "rebuild", "lifecycle", "erase", "cli"])
def test_a_command_that_a_text_of_a_package_names_exists(package: str) -> None:
    named = {
        match[1]
        for path in sorted((PACKAGE / package).glob("*.py"))
        for text in texts(path)
        for match in COMMAND.finditer(text)
    }
    assert [problem for one in sorted(named) if (problem := problem_of(one)) is not None] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_that_a_page_names_exists(page: Path) -> None:
    found = re.findall(r"`coldstream ([a-z][^`]*)`", page.read_text())
    assert found
    assert [problem for one in found if (problem := problem_of(one)) is not None] == []


def test_the_command_of_an_alarm_exists() -> None:
    lines = [match[1] for text in ALARM_COMMANDS.values() for match in COMMAND.finditer(text)]
    assert len(lines) > 3
    assert [problem for one in lines if (problem := problem_of(one)) is not None] == []


def test_a_command_that_does_not_exist_is_seen() -> None:
    assert problem_of("scrubb") is not None
    assert problem_of("scrub --restarts") is not None
    assert problem_of("quarantine lists orders") is not None
    assert problem_of("quarantine list orders --vhost a") is None
