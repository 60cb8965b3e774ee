"""Downloads: whole, through the server, and nothing that a browser would show as a page."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import httpx
import pytest

from coldstream.console.stream_address import path_of
from coldstream.units import now_ms
from tests.support.amqp_samples import encode
from tests.support.console_app import UNLIMITED, browser, console
from tests.support.hostile_text import HOSTILE_BODIES, HOSTILE_TEXTS
from tests.support.shown_archive import ShownArchive

LARGE = bytes(range(256)) * 4000


def asked(archive: ShownArchive, path: str, most: int | None = None) -> httpx.Response:
    async def run() -> httpx.Response:
        async with browser(console(archive, replace(UNLIMITED, max_download_bytes=most))) as client:
            return await client.get(path)

    return asyncio.run(run())


@pytest.mark.parametrize("body", [LARGE, b"", *list(HOSTILE_BODIES.values())[:30]], ids=lambda body: str(body[:20]))
def test_a_body_comes_whole_and_as_a_file(body: bytes) -> None:
    archive = ShownArchive(now_ms())
    message = encode(body=body)
    path = path_of(archive.add("bodies", [message]))
    found = asked(archive, f"{path}/messages/0/download")
    assert found.status_code == 200
    assert found.content == body
    assert asked(archive, f"{path}/messages/0/download?part=raw").content == message


@pytest.mark.parametrize("name", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_no_browser_takes_it_for_a_page(name: str) -> None:
    archive = ShownArchive(now_ms())
    path = path_of(archive.add(name, [encode(body=b"<script>alert(1)</script>")]))
    headers = asked(archive, f"{path}/messages/0/download").headers
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert headers["Cache-Control"] == "no-store"
    assert re.fullmatch(r'attachment; filename="[A-Za-z0-9._-]{1,120}"', headers["Content-Disposition"])


def test_what_is_larger_than_one_answer_may_be_is_refused_with_advice() -> None:
    archive = ShownArchive(now_ms())
    path = path_of(archive.add("bodies", [encode(body=LARGE)]))
    refused = asked(archive, f"{path}/messages/0/download", most=1000)
    assert refused.status_code == 413
    assert "coldstream read" in refused.text


@pytest.mark.parametrize("query", ["part=nothing", "part=%3Cscript%3E"])
def test_a_part_that_there_is_not_is_refused(query: str) -> None:
    archive = ShownArchive(now_ms())
    path = path_of(archive.add("bodies", [encode(body=b"x")]))
    assert asked(archive, f"{path}/messages/0/download?{query}").status_code == 400


def test_a_message_that_is_not_there_is_not_found() -> None:
    archive = ShownArchive(now_ms())
    path = path_of(archive.add("bodies", [encode(body=b"x")]))
    assert asked(archive, f"{path}/messages/1/download").status_code in {200, 404}
    assert asked(archive, f"{path}/messages/99999999/download").status_code == 404
