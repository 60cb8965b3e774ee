"""What docs/streams.md shows of HTTP is what happens."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.types import ASGIApp

from coldstream.web.access_tokens import AccessTokens, Right
from tests.support.fixtures import do_without
from tests.support.serving import hosting, memory_archive, served

PAGE = Path(__file__).parents[2] / "docs/streams.md"
SECTION = PAGE.read_text().partition("\n## Read and write by HTTP\n")[2].partition("\n## ")[0]
SHOWN = "localhost:4437"


def examples() -> list[tuple[str, str]]:
    """Return the commands of the section, and what each is said to print."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", SECTION, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            ends = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
            found.append(("\n".join(lines[: ends + 1]), "\n".join(lines[ends + 1 :])))
    return found


@asynccontextmanager
async def streams() -> AsyncIterator[ASGIApp]:
    async with hosting(memory_archive()) as (_, app):
        yield app


def test_the_commands_print_what_the_page_says(tmp_path: Path) -> None:
    for command in ("curl", "openssl"):
        if shutil.which(command) is None:
            do_without(command, f"on Debian: apt-get install {command}")
    with served(streams) as url:
        commands = examples()
        assert commands
        script = "\necho ----\n".join(command.replace(SHOWN, url.removeprefix("http://")) for command, _ in commands)
        done = subprocess.run(
            ["bash", "-c", script.replace("curl ", "curl -s ")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    printed = re.split(r"----\n", done.stdout)
    assert [text.strip() for text in printed] == [expected.strip() for _, expected in commands]
    page = AccessTokens.read(tmp_path / "tokens").caller_of("Bearer page")
    assert page is not None
    assert (page.may(Right.READ, "orders"), page.may(Right.WRITE, "orders")) == (True, False)
