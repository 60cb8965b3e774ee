"""Files that pages load: kept for ever by browsers, and htmx exactly as npm has it."""

from __future__ import annotations

import asyncio
import re
from hashlib import sha256

from coldstream.console.static_files import DIRECTORY, read_static_files
from coldstream.units import now_ms
from tests.support.console_app import browser, console
from tests.support.shown_archive import ShownArchive

HTMX = "2.0.11"
HTMX_SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
"""dist/htmx.min.js of htmx.org 2.0.11: `npm pack htmx.org@2.0.11`."""


def test_htmx_is_the_file_of_the_package() -> None:
    content = (DIRECTORY / "htmx.min.js").read_bytes()
    assert sha256(content).hexdigest() == HTMX_SHA256
    assert f'version:"{HTMX}"'.encode() in content
    assert (DIRECTORY / "htmx.LICENSE.txt").read_text().startswith("Zero-Clause BSD")


def test_a_file_is_served_at_its_digest_and_kept_for_ever() -> None:
    async def run() -> None:
        async with browser(console(ShownArchive(now_ms()))) as client:
            for name, file in read_static_files().items():
                found = await client.get(file.url)
                assert found.content == (DIRECTORY / name).read_bytes()
                assert found.headers["Cache-Control"] == "public, max-age=31536000, immutable"
                assert found.headers["X-Content-Type-Options"] == "nosniff"
            for path in (f"/static/0000000000000000/{name}", "/static/x/../app.py", "/static/x/htmx.LICENSE.txt"):
                assert (await client.get(path)).status_code == 404

    asyncio.run(run())


def test_styles_and_scripts_ask_for_nothing_else_and_do_nothing_inline() -> None:
    style = (DIRECTORY / "console.css").read_text()
    assert not re.findall(r"@import|https?:|data:|url\((?!#p-)", style)
    script = (DIRECTORY / "console.js").read_text()
    assert not re.findall(r"\beval\b|Function\(|innerHTML|outerHTML|insertAdjacent|document\.write|\.style\b", script)
    icon = (DIRECTORY / "icon.svg").read_text()
    assert "script" not in icon
    assert "style" not in icon
