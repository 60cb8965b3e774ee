"""What is asked of any page in a real browser: that it is well, that a keyboard reaches all of it, where links lead."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from tests.support.axe import violations
from tests.support.devtools import Tab

MAX_PAGES = 200
MAX_STOPS = 300
_LINKS = "[...document.querySelectorAll('a[href]:not([download])')].map((one) => one.href)"
_FACTS = """(() => {
    const named = (one) => one.labels?.length || one.ariaLabel || one.getAttribute("aria-labelledby") || one.title
    const kinds = "input:not([type=hidden], [type=submit], [type=button], [type=reset], [type=image]), select, textarea"
    return {
        title: document.title.trim(),
        lang: document.documentElement.lang,
        headings: document.querySelectorAll("h1").length,
        unlabelled: [...document.querySelectorAll(kinds)].filter((one) => !named(one)).map((one) => one.outerHTML),
    }
})()"""
_FOCUSED = """(() => {
    const one = document.activeElement
    if (!one || one === document.body) return null
    const place = []
    for (let at = one; at.parentElement; at = at.parentElement) {
        place.unshift([...at.parentElement.children].indexOf(at))
    }
    const text = one.ariaLabel || one.labels?.[0]?.innerText || one.innerText || one.value || ""
    return [place.join("/"), one.localName + (one.id && "#" + one.id), text.trim().replace(/\\s+/g, " ").slice(0, 80)]
})()"""


@dataclass(frozen=True)
class FocusStop:
    """An element at which Tab stops: where in the tree, its tag with its id, and the text that a person knows it by."""

    place: str
    tag: str
    text: str


def route_of(url: str) -> str:
    """Return the pattern of a URL: parts of the path that have a digit are one, and so are the values of the query."""
    found = urlsplit(url)
    path = "/".join("*" if re.search(r"\d", part) else part for part in found.path.split("/"))
    return path + "?" + "&".join(sorted({name for name, _ in parse_qsl(found.query, keep_blank_values=True)}))


def origin_of(url: str) -> str:
    """Return the origin of a URL."""
    found = urlsplit(url)
    return f"{found.scheme}://{found.netloc}"


def walk(
    tab: Tab,
    start: str,
    *,
    route: Callable[[str], str] = route_of,
    is_page: Callable[[str], bool] = lambda url: True,
    max_pages: int = MAX_PAGES,
) -> Iterator[str]:
    """Open a page and all that its links lead to in its origin, breadth first; yield the URL of each while it is open.

    Of URLs with the same route one is opened. Links that download are left out if they have the attribute; `is_page`
    says which others to leave out.

    Raises:
        AssertionError: there are more than `max_pages` routes.
    """
    origin = origin_of(start)
    waiting, known = deque([start]), {route(start)}
    while waiting:
        url = waiting.popleft()
        tab.go(url)
        links = [link.partition("#")[0] for link in tab.run(_LINKS)]
        for link in links:
            if origin_of(link) == origin and is_page(link) and route(link) not in known:
                known.add(route(link))
                waiting.append(link)
        assert len(known) <= max_pages, f"more than {max_pages} routes, the last of them {route(waiting[-1])}"
        yield url


def requests(tab: Tab) -> list[str]:
    """Return the URLs that the tab asked for since `Tab.problems` was last called, which forgets them."""
    tab.run("0")
    tab._tools.drain()
    return [
        event["params"]["request"]["url"]
        for event in tab._tools.events
        if event.get("method") == "Network.requestWillBeSent" and event.get("sessionId") == tab._session
    ]


def findings(tab: Tab) -> list[str]:
    """Return everything that is wrong with the page that a tab shows, and with how it was loaded.

    Without scripts axe-core cannot run: the rest is looked at.
    """
    origin = origin_of(tab.url)
    outside = {url for url in requests(tab) if not url.startswith(("data:", "blob:")) and origin_of(url) != origin}
    found = [f"a request to another origin: {url}" for url in sorted(outside)]
    found += tab.problems()
    facts = tab.run(_FACTS)
    if not facts["title"]:
        found.append("no title")
    if not facts["lang"]:
        found.append("no language")
    if facts["headings"] != 1:
        found.append(f"{facts['headings']} first headings")
    found += [f"no label: {one}" for one in facts["unlabelled"]]
    if tab.screen.has_scripts:
        found += violations(tab)
    return found


def check_page(tab: Tab) -> None:
    """Fail with all that is wrong with the page that a tab shows."""
    found = findings(tab)
    assert not found, "\n".join([f"{tab.url}:", *found])


def focused(tab: Tab) -> FocusStop | None:
    """Return what has the focus; None if the page itself has it."""
    found = tab.run(_FOCUSED)
    return None if found is None else FocusStop(*found)


def tab_through(tab: Tab) -> list[FocusStop]:
    """Press Tab from the beginning of a page that was just opened to its end; return where the focus stopped.

    Raises:
        AssertionError: the focus comes back to a stop, or goes on for ever, and does not leave the page.
    """
    if tab.screen.has_scripts:
        tab.run("new Promise(requestAnimationFrame)")  # autofocus comes after the load, and before the next frame
    if focused(tab) is not None:
        _leave(tab)
    return _leave(tab)


def _leave(tab: Tab) -> list[FocusStop]:
    stops: list[FocusStop] = []
    places: set[str] = set()
    while len(stops) < MAX_STOPS:
        tab.press("Tab")
        stop = focused(tab)
        if stop is None:
            return stops
        assert stop.place not in places, f"the focus is caught: {[one.text or one.tag for one in stops]}, then {stop}"
        places.add(stop.place)
        stops.append(stop)
    raise AssertionError(f"Tab does not leave the page within {MAX_STOPS} stops, the last of them {stops[-1]}")
