"""The checker of histories as a process: Porcupine, in Go. `scripts/history-checker/build` builds it.

    with Checker() as checker:
        verdict = checker.check(history)

One process judges as many histories as one likes, one after the other.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.linearizability.history import History
from tests.support.server import ROOT

PROGRAM = ROOT / ".cache" / "history-checker" / "checker"
REMEDY = "with Go 1.21: scripts/history-checker/build"
TIMEOUT_S = 10.0
"""For one history. Most take less than a millisecond; what has no verdict by then counts as refused."""


def find_checker() -> Path | None:
    """Return where the program is, or None if it is not built."""
    return PROGRAM if PROGRAM.is_file() else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Porcupine says: "legal", "illegal", or "unknown" if it came to no end. `page` draws a refused one."""

    history: str
    verdict: str
    seconds: float
    page: str | None

    @property
    def is_legal(self) -> bool:
        return self.verdict == "legal"


class Checker:
    """The process, used as a context manager. With `pages`, what is not legal is drawn into that directory."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S, pages: Path | None = None) -> None:
        drawn = [] if pages is None else ["-visualize", str(pages)]
        self._command = [str(PROGRAM), "-timeout", f"{timeout_s}s", *drawn]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def check(self, history: History) -> Verdict:
        """Have a history judged. Raises ValueError if it is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(history.to_json() + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ValueError(f"{history.name} is no history: the checker says why above")
        told = json.loads(answer)
        return Verdict(told["history"], told["verdict"], told["seconds"], told.get("page"))
