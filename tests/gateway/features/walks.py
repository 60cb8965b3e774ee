"""The programs that use what stock clients offer, and what they have to find: README.md has what they do and print."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.gateway.clients.programs import BUILT
from tests.support.epmd import HOST
from tests.support.server import ROOT
from tests.support.stock_producer import JAVA, LIBRARIES, find_stream_client

MESSAGES = 1500
BATCH = 50
RUN_S = 240.0
KINDS = ("super-0", "super-1", "super-2", "filtered", "packed")

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Walker:
    """A program; its streams are called by its language."""

    language: str
    command: Sequence[str | Path]

    @property
    def streams(self) -> list[str]:
        """The streams that it fills."""
        return [f"walk-{self.language}-{kind}" for kind in KINDS]

    def fill(self, port: int, *, super_stream_is_there: bool = False) -> int:
        """Have the streams made and filled, and return a time (ms) in the middle of that."""
        middle: int = self._run("fill", port, "there" if super_stream_is_there else "")["middle"]
        return middle

    def walk(
        self, port: int, middle_ms: int, way: str, before: str = "", authority: Path | None = None
    ) -> dict[str, str]:
        """Have the streams read. `way` goes into the names of consumers, `before` is that of another walk.

        With the certificate of an authority the client speaks TLS, and to one address, as behind a balancer.
        """
        options = "" if authority is None else str(authority)
        found: dict[str, str] = self._run("walk", port, str(middle_ms), way, before, options)
        return found

    def _run(self, what: str, port: int, *arguments: str) -> dict:  # type: ignore[type-arg]  # what JSON has
        place = (HOST, str(port), f"walk-{self.language}", str(MESSAGES))
        done = subprocess.run(
            [*self.command, what, *place, *arguments], capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict = json.loads(done.stdout.splitlines()[-1])  # type: ignore[type-arg]
        return found


def find_javascript_walker() -> Walker | None:
    """Return the program in JavaScript, None where its client or Node.js is missing."""
    modules, node = BUILT / "javascript" / "node_modules", shutil.which("node")
    if node is None or not modules.exists():
        return None
    return Walker("javascript", ["env", f"NODE_PATH={modules}", node, _HERE / "javascript" / "walk.js"])


def find_java_walker(classes: Path) -> Walker | None:
    """Compile the program in Java into a directory; None where its client or Java is missing."""
    if find_stream_client() is None:
        return None
    compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = os.pathsep.join(map(str, LIBRARIES.glob("*.jar")))
    sources = [str(source) for source in (_HERE / "java").glob("*.java")]
    subprocess.run([*compiler, "-cp", jars, "-d", str(classes), *sources], check=True, cwd=ROOT)
    return Walker("java", [*JAVA, "-cp", f"{classes}:{LIBRARIES}/*", "Walk"])


def expected() -> Mapping[str, str]:
    """Return what a walk finds that follows from what was published."""
    filtered = [(number, _text(("north", "south")[number // BATCH % 2], number)) for number in range(MESSAGES)]
    return {
        "first": _summary(filtered),
        "offset": _summary(filtered[123:423]),
        "filtered": _summary(one for one in filtered if one[1].startswith("north")),
        "turns": _summary(filtered),
        "resumed": f"no offset; {_summary(filtered[100:200])}",
        "stats": "0",
    }


def _text(kind: str, number: int) -> str:
    return f"{kind} {number} {'x' * (900 + number % 97)}"


def _summary(taken: Iterable[tuple[int, str]]) -> str:
    messages = list(taken)
    digest = hashlib.sha256("".join(f"{offset} {text}\n" for offset, text in messages).encode())
    return f"{len(messages)} {messages[0][0]} {messages[-1][0]} {digest.hexdigest()}"
