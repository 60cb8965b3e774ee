"""A page in a real browser, of another origin than the server's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256

import httpx
import pytest
from starlette.types import ASGIApp

from coldstream.serve.options import ServeOptions
from coldstream.web.access_tokens import AccessTokens
from tests.support.browser import PageServer, find_browser, page_server
from tests.support.serving import hosting, memory_archive, served

JSON = {"Content-Type": "application/json"}
READ_EVENTS = """
    const source = new EventSource("{url}/v1/stream/orders?offset=-1&live=sse")
    const found = []
    source.addEventListener("data", (event) => {{
        found.push(...JSON.parse(event.data))
        if (found.length === 3) {{ source.close(); report(found) }}
        else if (found.length === 2) fetch("{url}/v1/stream/orders", {{
            method: "POST", headers: {{"Content-Type": "application/json"}}, body: "3" }})
    }})
    source.onerror = (event) => report("the browser refused")
"""
FETCH = """
    const response = await fetch("{url}/v1/stream/orders", {{headers: {{Authorization: "Bearer {token}"}}}})
    report([await response.json(), response.headers.get("Stream-Next-Offset")])
"""


@pytest.fixture
def pages() -> Iterator[PageServer]:
    find_browser()
    with page_server() as server:
        yield server


def serving(*origins: str, tokens: AccessTokens | None = None) -> Callable[[], AbstractAsyncContextManager[ASGIApp]]:
    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        async with hosting(memory_archive(), ServeOptions(cors_origins=origins), tokens) as (_, app):
            yield app

    return make


def test_a_page_follows_a_stream_by_events_and_appends_to_it(pages: PageServer) -> None:
    with served(serving(pages.origin)) as url:
        httpx.put(f"{url}/v1/stream/orders", headers=JSON, content=b"[1, 2]")
        assert pages.run(READ_EVENTS.format(url=url)) == [1, 2, 3]


def test_a_page_of_an_origin_that_was_not_named_sees_nothing(pages: PageServer) -> None:
    with served(serving("https://app.example")) as url:
        httpx.put(f"{url}/v1/stream/orders", headers=JSON, content=b"[1, 2]")
        assert pages.run(READ_EVENTS.format(url=url)) == "the browser refused"


def test_a_page_reads_with_a_token_and_sees_the_protocols_headers(pages: PageServer) -> None:
    known = AccessTokens.parse([f"{sha256(b'page').hexdigest()} page r *", f"{sha256(b'all').hexdigest()} all rw *"])
    with served(serving(pages.origin, tokens=known)) as url:
        httpx.put(f"{url}/v1/stream/orders", headers={**JSON, "Authorization": "Bearer all"}, content=b"[1, 2]")
        found = pages.run(FETCH.format(url=url, token="page"))
        assert found == [[1, 2], "0000000000000002_0000000000000000"]
