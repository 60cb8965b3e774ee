"""Which lines of a package each test reaches: only those tests can mind a mistake there."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Self

Line = tuple[str, int]
"""A file, and a line of it."""


class ReachedLines:
    """Notes the lines of files in a directory that are run, in all threads, while it is entered."""

    def __init__(self, inside: str) -> None:
        self.lines: set[Line] = set()
        self._inside = inside
        self._is_inside: dict[CodeType, bool] = {}

    def __enter__(self) -> Self:
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # None ends it

    def _call(self, frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        inside = self._is_inside.get(code)
        if inside is None:
            inside = self._is_inside[code] = code.co_filename.startswith(self._inside)
        if not inside:
            return None
        self.lines.add((code.co_filename, frame.f_lineno))
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


def statement_around(tree: ast.Module, line: int) -> range:
    """Return the lines of the innermost statement that has a line; of one with a body, those before it.

    The interpreter reports some of a statement's lines only, and which ones is its own business.
    """
    found = [lines for lines in _statements(tree) if line in lines]
    return min(found, key=len, default=range(line, line + 1))


def _statements(tree: ast.Module) -> Iterator[range]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None) or [case.body[0] for case in getattr(node, "cases", ())]
            end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            yield range(node.lineno, max(end, node.lineno + 1))
