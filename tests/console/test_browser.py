"""The console in a real browser: every page, light and dark, on a phone, without scripts, and by keyboard alone.

With COLDSTREAM_SCREENSHOTS=1 the pictures of docs/console.md are made again.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from coldstream.browse.spans import BrokerOffsets
from coldstream.console.stream_address import path_of
from coldstream.jobs.job import Job, JobProgress, JobState
from coldstream.jobs.store import JobStore
from coldstream.units import Offset, now_ms
from tests.support.axe import violations
from tests.support.console_app import UNLIMITED, access_of, console
from tests.support.console_jobs import sample_jobs
from tests.support.devtools import DARK, DESKTOP, NO_SCRIPTS, PHONE, PHONE_DARK, Browser, Screen, Tab, open_browser
from tests.support.hostile_text import HOSTILE_TEXTS
from tests.support.serving import served, tokens
from tests.support.shown_archive import ShownArchive, shown_archive

PICTURES = Path(__file__).parents[2] / "docs/images/console"
MAX_PICTURE_BYTES = 150_000
SCREENS = {"light": DESKTOP, "dark": DARK, "phone": PHONE, "dark phone": PHONE_DARK}


@dataclass
class Shown:
    """A console that is served: its URL, and what it shows."""

    url: str
    archive: ShownArchive
    jobs: JobStore
    samples: dict[str, Job]

    @property
    def orders(self) -> str:
        return path_of(self.archive.streams["orders"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    archive = shown_archive(now_ms())
    access = access_of(archive, probes={"default": lambda _: BrokerOffsets(Offset(900), Offset(2700))})
    samples = sample_jobs(access.jobs)

    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        yield console(access=access, options=replace(UNLIMITED, slice_bytes=50_000))

    with served(make) as url:
        yield Shown(url, archive, access.jobs, samples)


def pages(shown: Shown) -> dict[str, str]:
    """Name every page, and each state of it that looks different."""
    orders, samples = shown.orders, shown.samples
    return {
        "streams": "/streams",
        "streams-none": "/streams?search=nothing",
        "stream": f"{orders}?broker=default",
        "large-stream": path_of(shown.archive.streams["sensor-readings"]),
        "messages": f"{orders}/messages?at=60",
        "messages-gap": f"{orders}/messages?at=600",
        "messages-hex": f"{path_of(shown.archive.streams['clicks'])}/messages?at=last&body=hex",
        "message": f"{orders}/messages/45",
        "fragments": f"{orders}/fragments",
        "chunks": f"{orders}/chunks",
        "entries": f"{orders}/entries?at=45",
        "search": f"{orders}/search",
        "search-wrong": f"{orders}/search?q=body+~",
        "search-forecast": f"{orders}/search?q=app.region+%3D+%22eu-west-1%22+and+body+~+%22paid%22",
        "search-found": f"{orders}/search?q=json%3A%2Fcustomer%2Fcountry+%3D+%22DE%22&run=1&max_matches=20",
        "jobs": "/jobs",
        "jobs-none": "/jobs?state=cancelled",
        **{f"job-{name}": f"/jobs/{job.id}" for name, job in samples.items()},
        "job-edit": f"/jobs/{samples['running'].id}/edit",
        "job-kinds": "/jobs/new",
        **{
            f"job-new-{kind}": f"/jobs/new?kind={kind}"
            for kind in ("store", "load", "compact", "scrub", "erase", "export")
        },
        "job-new-table": "/jobs/new?kind=load&target.type=table",
        "health": "/health",
        "not-found": "/nothing",
        "wrong": "/streams?sort=nothing",
    }


@pytest.mark.parametrize("screen", SCREENS.values(), ids=SCREENS)
def test_every_page_is_well_and_nobody_is_kept_from_using_it(browser: Browser, shown: Shown, screen: Screen) -> None:
    found = []
    with browser.tab(screen) as tab:
        for name, path in pages(shown).items():
            tab.go(shown.url + path)
            found += [f"{name}: {one}" for one in violations(tab)]
            expected = {"not-found": "404", "wrong": "400"}.get(name)
            found += [
                f"{name}: {one}" for one in tab.problems() if expected is None or f"status of {expected}" not in one
            ]
            width = tab.run("document.documentElement.scrollWidth")
            if width > screen.width:
                found.append(f"{name} is {width} wide")
    assert not found, "\n".join(found)


def test_the_login_page_is_well_and_a_token_opens_the_console(browser: Browser) -> None:
    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        archive = ShownArchive(now_ms())
        yield console(archive, tokens=tokens("secret ops rw *"))

    with served(make) as url:
        for screen in SCREENS.values():
            with browser.tab(screen) as tab:
                tab.go(f"{url}/jobs")
                assert tab.title == "Log in · coldstream"
                assert violations(tab) == []
                tab.write("wrong")
                tab.enter()
                assert "is not known here" in tab.run("document.body.innerText")
                assert violations(tab) == []
                tab.write("secret")
                tab.enter()
                assert tab.url == f"{url}/jobs"
                assert tab.run("document.cookie") == ""
                tab.follow(".who button")
                assert tab.url == f"{url}/login"
                tab.go(f"{url}/streams")
                assert tab.title == "Log in · coldstream"


def test_a_hostile_name_does_nothing_in_a_browser(browser: Browser) -> None:
    archive = ShownArchive(now_ms())
    for text in HOSTILE_TEXTS.values():
        archive.add(text, [text.encode()] * 3, vhost=text)

    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        yield console(archive)

    with served(make) as url, browser.tab() as tab:
        for path in ("/streams", *map(path_of, archive.streams.values())):
            tab.go(url + path)
            assert tab.title.endswith("· coldstream")
            assert tab.problems() == []
        for stream in archive.streams.values():
            tab.go(f"{url}{path_of(stream)}/messages")
            assert tab.title.startswith("Messages of ")
            assert tab.problems() == []


def focused(tab: Tab) -> str:
    return str(tab.run("document.activeElement.id || document.activeElement.textContent.trim()"))


def tab_to(tab: Tab, wanted: str) -> None:
    """Press Tab until something has the focus; every stop on the way can be seen."""
    for _ in range(150):
        tab.press("Tab")
        seen = tab.run(
            "(() => { const one = document.activeElement; if (one === document.body) return true;"
            " const style = getComputedStyle(one);"
            " return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 })()"
        )
        assert seen, f"nobody sees that {focused(tab)} has the focus"
        if focused(tab) == wanted:
            return
    raise AssertionError(f"{wanted} is out of reach")


def test_by_keyboard_alone_a_stream_is_found_and_its_messages_are_read(browser: Browser, shown: Shown) -> None:
    with browser.tab() as tab:
        tab.go(f"{shown.url}/streams")
        tab.press("Tab")
        assert focused(tab) == "Skip to the content"
        tab.press("Enter")
        tab.wait_for("document.activeElement.id === 'main'")
        tab.press("/")
        assert focused(tab) == "search"
        tab.write("order")
        tab.wait_for("document.querySelectorAll('tbody tr').length === 1")
        assert "search=order" in tab.url
        tab_to(tab, "orders")
        tab.enter()
        tab_to(tab, "Messages")
        tab.enter()
        tab.press("/")
        tab.write("1000")
        tab.enter()
        assert tab.run("document.querySelector('.message h2').textContent") == "1,000"
        tab_to(tab, "Next")
        tab.enter()
        assert tab.run("document.querySelector('.message h2').textContent") == "1,025"
        assert tab.problems() == []


@pytest.mark.parametrize(
    "path", ["/streams", "{orders}", "{orders}/messages", "{orders}/search", "/jobs/new?kind=load"]
)
def test_the_focus_goes_through_a_page_and_out_of_it(browser: Browser, shown: Shown, path: str) -> None:
    with browser.tab() as tab:
        tab.go(shown.url + path.format(orders=shown.orders))
        count = tab.run(
            "[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex=\"0\"]')]"
            ".filter((one) => one.tabIndex >= 0 && one.type !== 'hidden' && one.checkVisibility()).length"
        )
        stops = []
        for _ in range(count + 5):
            tab.press("Tab")
            if tab.run("document.activeElement === document.body"):
                break
            stops.append(focused(tab))
        assert tab.run("document.activeElement === document.body"), stops[-5:]
        assert len(stops) >= count * 0.9  # of radio buttons one is enough
        tab.press("Tab", shift=True)
        assert not tab.run("document.activeElement === document.body")


def test_by_keyboard_alone_a_job_is_created_paused_and_cancelled(browser: Browser, shown: Shown) -> None:
    with browser.tab() as tab:
        tab.go(f"{shown.url}/jobs")
        tab_to(tab, "New job")
        tab.enter()
        tab_to(tab, "LoadReplay archived messages to a broker or a table")
        tab.enter()
        tab_to(tab, "f-streams")
        tab.write("orders")
        tab_to(tab, "Preview")
        tab.enter()
        assert tab.run("document.querySelector('[aria-invalid]').id") == "f-target-name"
        assert tab.run("document.getElementById('f-streams').value") == "orders"
        tab_to(tab, "f-target-name")
        tab.write("orders-again")
        tab_to(tab, "Preview")
        tab.enter()
        assert violations(tab) == []
        tab_to(tab, "Create the job")
        tab.enter()
        job = tab.url.rpartition("/")[2]
        assert shown.jobs.get(job).state is JobState.CREATED
        tab_to(tab, "act-pause")
        tab.enter()
        assert shown.jobs.get(job).state is JobState.PAUSED
        tab_to(tab, "act-resume")
        tab.enter()
        assert shown.jobs.get(job).state is JobState.WAITING
        tab_to(tab, "act-cancel")
        tab.press("Enter")
        tab_to(tab, "confirm-cancel")
        tab.write("something else")
        tab.enter()
        assert shown.jobs.get(job).state is JobState.WAITING
        tab.wait_for("document.activeElement.id === 'confirm-cancel'")  # autofocus comes after the page
        assert violations(tab) == []
        tab.run("document.activeElement.select()")
        tab.write(job)
        tab.enter()
        assert shown.jobs.get(job).state is JobState.CANCELLED
        tab_to(tab, "act-delete")
        tab.press("Enter")
        tab_to(tab, "confirm-delete")
        tab.write(job)
        tab.enter()
        assert tab.url == f"{shown.url}/jobs"
        assert shown.jobs.find(job) is None
        assert tab.problems() == [
            "log: Failed to load resource: the server responded with a status of 400 (Bad Request) " + place
            for place in (f"{shown.url}/jobs/new", f"{shown.url}/jobs/{job}/cancel")
        ]


def test_progress_is_live_and_ends_with_the_job(browser: Browser, shown: Shown) -> None:
    job = shown.jobs.get(shown.samples["running"].id)
    with browser.tab() as tab:
        tab.go(f"{shown.url}/jobs/{job.id}")
        tab.click("#act-cancel")
        tab.click("#confirm-cancel")
        tab.write("half of a na")
        more = JobProgress(75_000, 90_000, "offsets", 74_800, 64_000_000)
        shown.jobs.update(job.id, lambda found: replace(found, progress=more))
        tab.wait_for("document.getElementById('live').innerText.includes('75,000 of 90,000')")
        # What was being typed stays.
        assert tab.run("document.getElementById('confirm-cancel').value") == "half of a na"
        assert tab.run("document.activeElement.id") == "confirm-cancel"
        tab.wait_for("document.getElementById('announcer').textContent.includes('80 percent')")
        shown.jobs.update(job.id, lambda found: replace(found, state=JobState.SUCCEEDED, lease=None, ended_at=now_ms()))
        tab.wait_for("document.getElementById('act-delete')")
        assert not tab.run("document.getElementById('live').hasAttribute('hx-get')")
        assert tab.problems() == []
    shown.jobs.update(job.id, lambda _: replace(job, revision=0))


def test_a_search_goes_on_by_itself_up_to_its_bound_and_can_be_cancelled(browser: Browser, shown: Shown) -> None:
    query = "q=size+%3E+1&run=1&max_matches=10000"
    with browser.tab() as tab:
        tab.go(f"{shown.url}{shown.orders}/search?{query}")
        tab.wait_for("document.body.innerText.includes('All of the range was searched')")
        assert tab.run("document.querySelectorAll('article.message').length") == 2100
        assert tab.run("document.getElementById('more').hidden")
        assert "2,100 found" in tab.run("document.getElementById('announcer').textContent")
        assert tab.problems() == []
        tab.go(f"{shown.url}{shown.orders}/search?{query}")
        tab.run("document.querySelector('[data-stop]').click()")
        tab.wait_for("document.querySelector('.more.stopped')")
        found = tab.run("document.querySelectorAll('article.message').length")
        assert found < 2100
        assert tab.run("document.activeElement.textContent.trim()") == "Continue"
        assert (
            tab.run("new Promise((done) => setTimeout(() => done(document.querySelectorAll('article').length), 500))")
            == found
        )
        tab.enter()
        assert tab.run("document.querySelectorAll('article.message').length") > 0


def test_without_scripts_all_of_it_works(browser: Browser, shown: Shown) -> None:
    with browser.tab(NO_SCRIPTS) as tab:
        tab.go(f"{shown.url}/streams")
        tab.click("#search")
        tab.write("order")
        tab.enter()
        assert tab.url.startswith(f"{shown.url}/streams?search=order")
        tab.follow("a.name")
        assert tab.url == f"{shown.url}{shown.orders}"
        tab.go(f"{shown.url}{shown.orders}/search?q=size+%3E+1")
        tab.follow("#forecast .primary")
        first = tab.url
        tab.follow(".more .button")
        assert tab.url != first
        assert "cursor=" in tab.url
        tab.go(f"{shown.url}/jobs/new?kind=scrub")
        tab.follow("#job-form .primary")
        tab.follow("#preview .primary")
        job = tab.url.rpartition("/")[2]
        tab.follow("#act-pause")
        assert shown.jobs.get(job).state is JobState.PAUSED
        tab.click("#act-cancel")
        tab.click("#confirm-cancel")
        tab.write(job)
        tab.enter()
        assert shown.jobs.get(job).state is JobState.CANCELLED
        tab.follow('.themes [value="dark"]')
        assert tab.url == f"{shown.url}/jobs/{job}"
        shown.jobs.delete(job)


def test_colours_follow_the_system_unless_somebody_chose_some(browser: Browser, shown: Shown) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with browser.tab(DESKTOP) as light, browser.tab(DARK) as dark:
        for tab in (light, dark):
            tab.go(f"{shown.url}/streams")
        bright, dim = light.run(ground), dark.run(ground)
        assert bright != dim
        light.follow('.themes [value="dark"]')
        dark.follow('.themes [value="light"]')
        assert (light.run(ground), dark.run(ground)) == (dim, bright)
        light.follow('.themes [value="auto"]')
        assert light.run(ground) == bright


def test_a_click_on_the_timeline_goes_to_that_place(browser: Browser, shown: Shown) -> None:
    with browser.tab() as tab:
        tab.go(f"{shown.url}{shown.orders}")
        tab.follow(".timeline a:nth-of-type(75) .cell")
        assert tab.url == f"{shown.url}{shown.orders}/messages?at=1761"
        assert tab.run("document.querySelector('.message h2').textContent") == "1,761"
        tab.go(f"{shown.url}{shown.orders}")
        tab.follow(".lane.archive .span.gap")
        assert "are not in the archive" in tab.run("document.body.innerText")


PICTURED = {
    "streams": ("streams", DESKTOP),
    "streams-dark": ("streams", DARK),
    "streams-phone": ("streams", PHONE),
    "stream": ("stream", DESKTOP),
    "stream-dark": ("stream", DARK),
    "stream-phone": ("stream", PHONE),
    "messages": ("messages", DESKTOP),
    "messages-dark": ("messages", DARK),
    "message": ("message", DESKTOP),
    "search": ("search-forecast", DESKTOP),
    "found": ("search-found", DESKTOP),
    "jobs": ("jobs", DESKTOP),
    "jobs-phone": ("jobs", PHONE_DARK),
    "job": ("job-running", DESKTOP),
    "job-failed": ("job-failed", DARK),
    "job-new": ("job-new-load", DESKTOP),
    "health": ("health", DESKTOP),
    "chunks": ("chunks", DESKTOP),
}


@pytest.mark.parametrize("name", PICTURED)
def test_a_picture_of_a_page_is_small_and_no_empty_one(
    browser: Browser, shown: Shown, tmp_path: Path, name: str
) -> None:
    page, screen = PICTURED[name]
    directory = PICTURES if os.environ.get("COLDSTREAM_SCREENSHOTS") else tmp_path
    directory.mkdir(parents=True, exist_ok=True)
    with browser.tab(screen) as tab:
        tab.go(shown.url + pages(shown)[page])
        tab.run("document.fonts.ready.then(() => 0)")
        tab.photograph(directory / f"{name}.png")
    assert 8_000 < (directory / f"{name}.png").stat().st_size < MAX_PICTURE_BYTES


def test_the_page_of_the_documentation_shows_pictures_that_are_there() -> None:
    shown = {path.name for path in PICTURES.glob("*.png")}
    page = (PICTURES.parents[1] / "console.md").read_text()
    named = {part.partition(")")[0] for part in page.split("(images/console/")[1:]}
    assert named
    assert named <= shown <= {f"{name}.png" for name in PICTURED}
