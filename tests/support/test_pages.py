"""What is planted in a page is found, in a real browser that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.support.devtools import NO_SCRIPTS, Browser, DevToolsError, Tab, open_browser
from tests.support.pages import check_page, findings, focused, requests, route_of, tab_through, walk
from tests.support.serving import served

PATIENCE_S = 60
AUTOFOCUSED = "document.activeElement.id === 'name'"
WELL = "<main><h1>Streams</h1><p>All is well.</p>{}</main>"
PAGE = '<!doctype html><html lang="en"><title>Streams</title><link rel="icon" href="/dot.svg"><body>{}</body></html>'
ELSEWHERE = "http://localhost:{port}/dot.svg"
DOT = '<svg xmlns="http://www.w3.org/2000/svg"/>'
PAGES = {
    "/well": WELL.format(""),
    "/exception": WELL.format("") + "<script>setTimeout(() => { throw new Error('a planted exception') })</script>",
    "/console": WELL.format("") + "<script>console.error('a planted complaint')</script>",
    "/missing": WELL.format('<img src="/nothing.svg" alt="Nothing">'),
    "/outside": WELL.format(f'<img src="{ELSEWHERE}" alt="Elsewhere">'),
    "/contrast": WELL.format('<p style="color: #ccc; background: #fff">Nobody can read this.</p>'),
    "/image": WELL.format('<img src="/dot.svg">'),
    "/headings": WELL.format("<h1>Another</h1>"),
    "/label": WELL.format('<input type="text" name="search">'),
    "/inline": WELL.format("") + "<script>document.title = 'Owned'</script>",
    "/links": WELL.format(
        '<a href="/jobs/1">One</a> <a href="/jobs/2">Two</a> <a href="/links?page=2">Next</a> <a href="#top">Top</a>'
        f'<a href="{ELSEWHERE}">Elsewhere</a> <a href="/file" download>File</a> <a href="/skipped">Skipped</a>'
    ),
    "/jobs/1": WELL.format('<a href="/links">Back</a> <a href="/deep">Deep</a>'),
    "/jobs/2": WELL.format(""),
    "/deep": WELL.format(""),
    "/endless/0": WELL.format('<a href="/endless/a">On</a>'),
    "/endless/a": WELL.format('<a href="/endless/b">On</a>'),
    "/endless/b": WELL.format('<a href="/endless/0">On</a>'),
    "/keyboard": WELL.format(
        '<a id="first" href="/well">Well</a> <button disabled>Off</button> <button id="press">Press</button>'
        '<label>Name <input id="name" autofocus></label> <a id="twice" href="/deep">Same</a> <a href="/deep">Same</a>'
        '<a href="/deep" tabindex="-1">Skipped</a>'
    )
    + "<script>press.onclick = () => { document.title = 'pressed' }</script>",
    "/caught": WELL.format('<button id="one">One</button><button id="two">Two</button><button>Three</button>')
    + "<script>two.onkeydown = (event) => { event.preventDefault(); one.focus() }</script>",
    "/noscript": WELL.format("<noscript><p>Without scripts</p></noscript>") + "<script>document.title = ''</script>",
}
PLANTED = {
    "/exception": "a planted exception",
    "/console": "console: a planted complaint",
    "/missing": "404",
    "/outside": "a request to another origin: http://localhost:",
    "/contrast": "color-contrast",
    "/image": "image-alt",
    "/headings": "2 first headings",
    "/label": 'no label: <input type="text" name="search">',
    "/inline": "Content Security Policy",
    "/bare": "no title",
    "/bare?": "no language",
    "/bare??": "0 first headings",
}


async def page(request: Request) -> Response:
    """Answer with a page; that of `/inline` forbids scripts of its own."""
    path = request.url.path
    if path == "/dot.svg":
        return Response(DOT, media_type="image/svg+xml")
    if path == "/bare":
        return HTMLResponse("<!doctype html><body>Bare</body>")
    if path not in PAGES:
        return Response(status_code=404)
    headers = {"Content-Security-Policy": "default-src 'self'"} if path == "/inline" else {}
    return HTMLResponse(PAGE.format(PAGES[path]).replace("{port}", str(request.url.port)), headers=headers)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        yield Starlette(routes=[Route("/{path:path}", page)])

    with served(make) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with browser.tab() as found:
        yield found


def test_nothing_is_found_in_a_page_that_is_well(tab: Tab, site: str) -> None:
    tab.go(f"{site}/well")
    check_page(tab)


def test_all_that_a_page_asks_for_is_known(tab: Tab, site: str) -> None:
    tab.go(f"{site}/image")
    assert set(requests(tab)) == {f"{site}/image", f"{site}/dot.svg"}


@pytest.mark.parametrize(("path", "problem"), PLANTED.items())
def test_what_is_planted_in_a_page_is_found(tab: Tab, site: str, path: str, problem: str) -> None:
    tab.go(site + path)
    if path == "/exception":
        tab.run("new Promise((done) => setTimeout(done))")  # timers run in order: the page's own has run
    with pytest.raises(AssertionError, match=path.partition("?")[0]) as failure:
        check_page(tab)
    assert problem in str(failure.value)


def test_a_problem_of_one_page_is_not_told_of_the_next(tab: Tab, site: str) -> None:
    tab.go(f"{site}/console")
    assert findings(tab)
    tab.go(f"{site}/well")
    check_page(tab)


def test_a_policy_against_inline_scripts_stops_the_page_and_not_axe(tab: Tab, site: str) -> None:
    tab.go(f"{site}/inline")
    assert tab.title == "Streams"
    assert not [one for one in findings(tab) if "axe" in one]


def test_each_route_is_walked_once_and_breadth_first(tab: Tab, site: str) -> None:
    walked = list(walk(tab, f"{site}/links", is_page=lambda url: not url.endswith("/skipped")))
    assert walked == [f"{site}{path}" for path in ("/links", "/jobs/1", "/links?page=2", "/deep")]


def test_a_walk_without_an_end_fails_at_its_bound(tab: Tab, site: str) -> None:
    with pytest.raises(AssertionError, match="more than 2 routes"):
        list(walk(tab, f"{site}/endless/0", max_pages=2))


def test_a_route_leaves_out_numbers_and_values() -> None:
    assert route_of("http://a/streams/7?at=1&body=hex&at=2") == "/streams/*?at&body"
    assert route_of("http://a/streams/7?body=") == "/streams/*?body"
    assert route_of("http://a/streams/new") != route_of("http://a/streams/7")


def test_tab_stops_at_everything_that_is_in_reach_in_order_also_after_autofocus(tab: Tab, site: str) -> None:
    tab.go(f"{site}/keyboard")
    tab.wait_for(AUTOFOCUSED)
    stop = focused(tab)
    assert stop is not None
    assert stop.tag == "input#name"
    stops = [(stop.tag, stop.text) for stop in tab_through(tab)]
    named = [("a#first", "Well"), ("button#press", "Press"), ("input#name", "Name"), ("a#twice", "Same"), ("a", "Same")]
    assert stops == named


def test_keys_press_buttons_type_and_go_back(tab: Tab, site: str) -> None:
    tab.go(f"{site}/keyboard")
    tab.wait_for(AUTOFOCUSED)
    tab.write("bç")
    assert tab.run("document.activeElement.value") == "bç"
    tab.press("Tab", shift=True)
    tab.press("Space")
    tab.wait_for("document.title === 'pressed'")
    tab.press("Tab", shift=True)
    tab.enter()
    assert tab.url == f"{site}/well"


def test_a_page_that_catches_the_focus_is_told_of(tab: Tab, site: str) -> None:
    tab.go(f"{site}/caught")
    with pytest.raises(AssertionError, match="the focus is caught"):
        tab_through(tab)


def test_without_scripts_a_page_runs_none_and_is_looked_at(browser: Browser, site: str) -> None:
    with browser.tab(NO_SCRIPTS) as tab:
        tab.go(f"{site}/noscript")
        assert "Without scripts" in tab.run("document.body.innerText")
        check_page(tab)
        tab.go(f"{site}/label")
        assert findings(tab) == ['no label: <input type="text" name="search">']


def test_a_tab_knows_nothing_of_the_cookies_of_another(browser: Browser, site: str) -> None:
    with browser.tab() as one, browser.tab() as other:
        for tab in (one, other):
            tab.go(f"{site}/well")
        one.run("document.cookie = 'name=value'")
        assert one.run("document.cookie") == "name=value"
        assert other.run("document.cookie") == ""


def test_a_script_that_fails_and_a_page_that_is_not_there_are_errors(tab: Tab, site: str) -> None:
    tab.go(f"{site}/well")
    with pytest.raises(DevToolsError, match="a planted exception"):
        tab.run("Promise.reject(new Error('a planted exception'))")
    with pytest.raises(DevToolsError, match="no #nothing"):
        tab.click("#nothing")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(DevToolsError, match="ERR_CONNECTION_REFUSED"):
            tab.go(f"http://127.0.0.1:{deaf.getsockname()[1]}/")


def test_a_picture_is_as_large_as_the_screen(tab: Tab, site: str, tmp_path: Path) -> None:
    tab.go(f"{site}/well")
    tab.photograph(tmp_path / "page.png")
    header = (tmp_path / "page.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    size = int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")
    assert size == (tab.screen.width, tab.screen.height)


def processes_of(profiles: Path) -> dict[int, str]:
    """Find the browser that has its profile in a directory, and all that it started; by process, when each began."""
    parents, began, found = {}, {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # ended since it was listed
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)], began[int(entry.name)] = int(fields[1]), fields[19]
                    if str(profiles) in (entry / "cmdline").read_text(errors="replace"):
                        found.add(int(entry.name))
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return {one: began[one] for one in found}


def wait_for_the_end(processes: dict[int, str]) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        alive = {}
        for process, began in processes.items():
            with suppress(OSError):
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z" and fields[19] == began:
                    alive[process] = began
        if not alive:
            return
        time.sleep(0.02)
    raise AssertionError(f"these still run: {sorted(alive)}")


def kill_the_browser(processes: dict[int, str]) -> None:
    """Kill the one among its processes that this process started."""
    status = {process: Path(f"/proc/{process}/status").read_text() for process in processes}
    os.kill(next(one for one, found in status.items() if f"PPid:\t{os.getpid()}\n" in found), signal.SIGKILL)


@pytest.mark.parametrize("end", ["a test fails", "the browser dies"])
def test_the_browser_is_gone_afterwards(end: str, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("tests.support.devtools.PATIENCE_S", 10)  # so long a dead browser is waited for
    running: dict[int, str] = {}

    def fail() -> None:
        with open_browser() as browser, browser.tab() as tab:
            tab.go(f"{site}/well")
            running.update(processes_of(tmp_path))
            if end == "the browser dies":
                kill_the_browser(running)
            raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, DevToolsError, BrokenPipeError)):
        fail()
    assert len(running) > 1, running
    wait_for_the_end(running)
    assert not processes_of(tmp_path)
    assert list(tmp_path.iterdir()) == []
