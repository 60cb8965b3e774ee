"""Where a change comes from: only forms of the console's own pages change anything."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from coldstream.console.console_options import ConsoleOptions
from coldstream.units import now_ms
from tests.support.console_app import browser, console
from tests.support.serving import tokens
from tests.support.shown_archive import ShownArchive

OWN = "http://localhost"
PAUSES = ["/jobs/new", "/jobs/x/pause", "/jobs/x/resume", "/jobs/x/cancel", "/jobs/x/delete", "/jobs/x/edit", "/theme"]
REFUSED = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "http://localhost:81"},
    {"Origin": "https://localhost"},
    {"Origin": "http://user@localhost"},
    {"Origin": OWN, "Sec-Fetch-Site": "cross-site"},
    {"Origin": OWN, "Sec-Fetch-Site": "same-site"},
    {"Origin": OWN, "Sec-Fetch-Site": "none"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "cross-site"},
    {},
]
TAKEN = [{"Origin": OWN}, {"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "same-origin"}]


def posted(path: str, headers: dict[str, str], *, logged_in: bool = False) -> httpx.Response:
    async def run() -> httpx.Response:
        app = console(ShownArchive(now_ms()), tokens=tokens("secret ops rw *") if logged_in else None)
        async with browser(app) as client:
            if logged_in:
                assert (await client.post("/login", data={"token": "secret"})).status_code == 303
            for name in ("Origin", "Sec-Fetch-Site"):
                del client.headers[name]
            return await client.post(path, data={"kind": "scrub"}, headers=headers)

    return asyncio.run(run())


@pytest.mark.parametrize("logged_in", [False, True], ids=["open", "with a session"])
@pytest.mark.parametrize("headers", REFUSED, ids=str)
def test_a_change_from_elsewhere_is_refused(headers: dict[str, str], *, logged_in: bool) -> None:
    answer = posted("/jobs/new", headers, logged_in=logged_in)
    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("headers", TAKEN, ids=str)
def test_a_change_by_a_form_of_the_console_is_taken(headers: dict[str, str]) -> None:
    assert posted("/jobs/new", headers).status_code == 200
    assert posted("/jobs/new", headers, logged_in=True).status_code == 200


@pytest.mark.parametrize("path", [*PAUSES, "/login", "/logout"])
def test_every_change_is_checked(path: str) -> None:
    assert posted(path, {"Origin": "https://evil.example"}).status_code == 403


def test_a_login_from_elsewhere_is_no_login() -> None:
    async def run() -> None:
        async with browser(console(ShownArchive(now_ms()), tokens=tokens("secret ops rw *"))) as client:
            answer = await client.post("/login", data={"token": "secret"}, headers={"Origin": "https://evil.example"})
            assert answer.status_code == 403
            assert not client.cookies

    asyncio.run(run())


@pytest.mark.parametrize("media_type", ["text/plain", "multipart/form-data; boundary=x", "application/json", ""])
def test_a_body_that_is_no_form_is_refused(media_type: str) -> None:
    async def run() -> int:
        async with browser(console(ShownArchive(now_ms()))) as client:
            sent = await client.post("/jobs/new", content=b"kind=scrub", headers={"Content-Type": media_type})
            return sent.status_code

    assert asyncio.run(run()) == 400


def test_a_form_that_is_too_large_is_refused() -> None:
    async def run() -> tuple[int, int]:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        async with browser(console(ShownArchive(now_ms()))) as client:
            large = await client.post("/jobs/new", content=b"a=" + b"x" * 300_000, headers=form)
            many = await client.post("/jobs/new", content=b"&".join([b"a=1"] * 300), headers=form)
            return large.status_code, many.status_code

    assert asyncio.run(run()) == (413, 400)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4480", "127.0.0.1.evil.example", ""])
@pytest.mark.parametrize("path", ["/streams", "/jobs", "/health", "/login", "/nothing"])
def test_without_tokens_a_page_whose_name_resolves_to_this_machine_sees_nothing(host: str, path: str) -> None:
    async def run() -> httpx.Response:
        async with browser(console(ShownArchive(now_ms()))) as client:
            return await client.get(path, headers={"Host": host})

    answer = asyncio.run(run())
    assert answer.status_code == 421


def test_a_host_that_was_named_is_this_one() -> None:
    async def run() -> int:
        options = ConsoleOptions(host_names=("console.example",))
        async with browser(console(ShownArchive(now_ms()), options)) as client:
            return (await client.get("/streams", headers={"Host": "console.example:443"})).status_code

    assert asyncio.run(run()) == 200
