"""The Python of docs/streams.md and of its example in the README runs as it is written."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

from coldstream.streams import DirectArchive

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "streams.md"
SECTIONS = ("A tour", "Deduplication", "Key-values")
"""One after the other, in one program: later ones use what earlier ones opened."""

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(section: str) -> list[str]:
    found = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return BLOCK.findall(found[1])


async def run(codes: list[str], names: dict[str, object]) -> None:
    """Run pieces one after the other, which may await, as in a notebook."""
    for number, code in enumerate(codes):
        compiled = compile(code, f"block {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        begun = eval(compiled, names)
        if inspect.isawaitable(begun):
            await begun


def test_the_tour_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = [code for section in SECTIONS for code in blocks(section)]
    assert len(others) >= 10
    names: dict[str, object] = {}
    exec(first, names)
    assert "[b'order 1', b'order 2']" in capsys.readouterr().out
    asyncio.run(run(others, names))


def test_the_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [one for one in BLOCK.findall((ROOT / "README.md").read_text()) if "BlockingStreamClient" in one]
    monkeypatch.setattr(DirectArchive, "from_environment", DirectArchive.in_memory)
    exec(code, {})
    assert capsys.readouterr().out == "0 b'alice logged in'\n1 b'alice logged out'\n"
