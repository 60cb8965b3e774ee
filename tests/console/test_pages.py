"""Every page, over archives whose names and bodies are hostile: nothing of theirs is anything but text."""

from __future__ import annotations

import asyncio
from urllib.parse import quote, urlencode

import httpx
import pytest
from starlette.applications import Starlette

from coldstream.browse.health_report import HealthFinding, HealthLevel
from coldstream.browse.spans import BrokerOffsets
from coldstream.console.page_headers import POLICY
from coldstream.console.stream_address import path_of
from coldstream.jobs import changes
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.stream import StreamId
from coldstream.operate.diagnosis import ArchivePart
from coldstream.units import now_ms
from tests.support.amqp_samples import MESSAGES, encode
from tests.support.console_app import UNLIMITED, access_of, browser, console
from tests.support.hostile_text import HOSTILE_BODIES, HOSTILE_TEXTS
from tests.support.html_checks import PageReport, check_page, is_in_text
from tests.support.shown_archive import ShownArchive

MARKUP = HOSTILE_TEXTS["script"]
BODIES = [body for body in HOSTILE_BODIES.values() if len(body) < 30_000]


def hostile_archive() -> ShownArchive:
    """Make a stream of each hostile name, with hostile bodies and properties; reasons are hostile, too."""
    archive = ShownArchive(now_ms())
    for text in HOSTILE_TEXTS.values():
        archive.add(text, [encode(body=text.encode())], vhost=text)
    messages = [
        encode(body=body, application_properties={text: text for text in HOSTILE_TEXTS.values()}) for body in BODIES
    ]
    busy = archive.add("busy", [*messages, *MESSAGES.values(), *BODIES], a_chunk=7, without=(3,), why=MARKUP)
    archive.quarantine(busy, 30, 40, MARKUP)
    archive.hold(busy, 0, 20, MARKUP)
    return archive


@pytest.fixture(scope="module")
def archive() -> ShownArchive:
    return hostile_archive()


@pytest.fixture(scope="module")
def app(archive: ShownArchive) -> Starlette:
    findings = (HealthFinding(next(iter(ArchivePart)), HealthLevel.BAD, MARKUP, MARKUP, MARKUP, MARKUP),)
    access = access_of(archive, findings=findings, probes={"default": lambda _: BrokerOffsets(problem=MARKUP)})
    make_jobs(access.jobs)
    return console(access=access, options=UNLIMITED)


def make_jobs(jobs: JobStore) -> None:
    texts = list(HOSTILE_TEXTS.values())
    given = [
        {"kind": "load", "streams": texts, "vhost": MARKUP, "target": {"type": "stream", "name": MARKUP}},
        {"kind": "erase", "stream": MARKUP, "offsets": "1:2", "reason": MARKUP},
        {"kind": "scrub", "name": MARKUP},
        {"kind": "export", "streams": [MARKUP], "destination": MARKUP},
    ]
    for number, one in enumerate(given):
        job = jobs.create(parse_spec(one), by=MARKUP)
        jobs.update(job.id, lambda found: changes.acquired(found, MARKUP, 1000, now_ms()), say=MARKUP)
        if number % 2:
            jobs.update(job.id, lambda found: changes.failed(found, MARKUP, now_ms()), say=MARKUP)


def asked(app: Starlette, *paths: str) -> list[httpx.Response]:
    async def run() -> list[httpx.Response]:
        async with browser(app) as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(run())


def checked(answer: httpx.Response, status: int = 200) -> PageReport:
    assert answer.status_code == status, answer.text[:2000]
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    report = check_page(answer.text)
    assert report.problems == []
    return report


VIEWS = ("", "/messages", "/messages?at=last", "/fragments", "/chunks", "/entries", "/search", "/messages/0")


@pytest.mark.parametrize("name", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_every_view_of_a_stream_with_a_hostile_name(app: Starlette, archive: ShownArchive, name: str) -> None:
    path = path_of(archive.streams[name])
    for answer in asked(app, *(path + view for view in VIEWS)):
        checked(answer)


@pytest.mark.parametrize("form", ["auto", "text", "json", "hex"])
def test_hostile_bodies_and_properties_are_text(app: Starlette, archive: ShownArchive, form: str) -> None:
    path = path_of(archive.streams["busy"])
    marks = 0
    offsets = [*range(0, 300, 25)]
    for answer in asked(app, *(f"{path}/messages?at={offset}&body={form}" for offset in offsets)):
        marks += is_in_text(checked(answer), "coldstream-was-here")
    assert form == "hex" or marks


def test_each_hostile_body_on_a_page_of_its_own(app: Starlette, archive: ShownArchive) -> None:
    path = path_of(archive.streams["busy"])
    answers = asked(app, *(f"{path}/messages/{offset}?body={form}" for offset in range(60) for form in ("auto", "hex")))
    for answer in answers:
        checked(answer, answer.status_code)
        assert answer.status_code in {200, 404}
    assert sum(answer.status_code == 200 for answer in answers) > 50


def test_the_list_of_streams_however_it_is_sorted_and_searched(app: Starlette) -> None:
    sorts = ["name", "messages", "data_bytes", "stored_bytes", "first_time", "last_time", "lag", "gaps", "cost"]
    queries = [{"sort": sort, "order": order} for sort in sorts for order in ("up", "down")]
    queries += [{"search": text} for text in HOSTILE_TEXTS.values()]
    queries += [{"vhost": text} for text in HOSTILE_TEXTS.values()]
    queries += [{"troubled": "on"}, {"deleted": "on"}]
    for answer in asked(app, *(f"/streams?{urlencode(query)}" for query in queries)):
        checked(answer)


def test_the_timeline_tells_hostile_reasons_as_text(app: Starlette, archive: ShownArchive) -> None:
    path = path_of(archive.streams["busy"])
    for answer in asked(app, path, f"{path}?broker=default", f"{path}?{urlencode({'broker': MARKUP})}"):
        assert is_in_text(checked(answer))


def test_jobs_and_health_tell_what_others_chose_as_text(app: Starlette) -> None:
    listed, health = asked(app, "/jobs", "/health")
    assert is_in_text(checked(health))
    links = {link for link in checked(listed).links if link.startswith("/jobs/") and link != "/jobs/new"}
    assert len(links) == 4
    for answer in asked(app, *links, *(f"{link}/edit" for link in links)):
        checked(answer, answer.status_code)
        assert answer.status_code in {200, 409} or answer.request.url.path.endswith("/edit")


@pytest.mark.parametrize("kind", ["store", "load", "compact", "scrub", "erase", "export", "retention", MARKUP])
def test_the_form_of_each_kind_shows_what_was_typed_as_text(app: Starlette, kind: str) -> None:
    fields = {"kind": kind, "streams": "\n".join(HOSTILE_TEXTS.values()), "stream": MARKUP, "vhost": MARKUP}
    fields |= {"target.name": MARKUP, "destination": MARKUP, "reason": MARKUP, "rate": MARKUP, "key": MARKUP}
    (shown,) = asked(app, f"/jobs/new?{urlencode(fields)}")
    checked(shown)

    async def post(step: str) -> httpx.Response:
        async with browser(app) as client:
            return await client.post("/jobs/new", data={**fields, "step": step})

    for step in ("preview", "create", MARKUP):
        answer = asyncio.run(post(step))
        assert answer.status_code in {200, 303, 400}
        if answer.status_code != 303:  # which is a job that was created
            checked(answer, answer.status_code)


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_hostile_questions_are_refused_in_words(app: Starlette, archive: ShownArchive, text: str) -> None:
    path = path_of(archive.streams["orders" if "orders" in archive.streams else "busy"])
    queries = [
        *(f"{path}/messages?{urlencode({name: text})}" for name in ("at", "before", "body")),
        *(f"{path}/search?{urlencode({'q': text, 'from': text, 'to': text, 'run': run})}" for run in ("", "1")),
        f"{path}/search?{urlencode({'q': 'size > 1', 'cursor': text, 'run': '1'})}",
        *(f"{path}/{view}?{urlencode({'at': text, 'first': text})}" for view in ("fragments", "chunks", "entries")),
        f"/streams?{urlencode({'sort': text, 'page': text})}",
        f"/jobs?{urlencode({'state': text, 'kind': text, 'cursor': text})}",
        f"/jobs/{quote(text, safe='')}",
        f"/nothing/{quote(text, safe='')}",
        f"/streams/{quote(text, safe='')}/x/y",
    ]
    for answer in asked(app, *queries):
        if answer.is_redirect:
            continue  # a path with dots that the client resolved
        checked(answer, answer.status_code)
        assert answer.status_code < 500, answer.text


def test_a_page_of_an_error_says_what_to_do_and_as_a_part_replaces_only_the_notice(app: Starlette) -> None:
    async def run() -> tuple[httpx.Response, httpx.Response]:
        async with browser(app) as client:
            whole = await client.get("/jobs/nothing")
            part = await client.get("/jobs/nothing", headers={"HX-Request": "true"})
            return whole, part

    whole, part = asyncio.run(run())
    assert "There is no such job" in "".join(checked(whole, 404).text)
    assert "HX-Retarget" not in whole.headers
    assert (part.status_code, part.headers["HX-Retarget"], part.headers["HX-Reselect"]) == (404, "#notice", "#notice")
    assert 'id="notice"' in part.text


def test_a_search_says_what_it_will_read_and_then_goes_on_slice_by_slice() -> None:
    archive = ShownArchive(now_ms())
    stream = archive.add("many", [encode(body=b"needle %d" % number) for number in range(400)])
    app = console(archive)
    path = path_of(stream)
    query = {"q": 'body ~ "needle"', "max_matches": "120"}
    (forecast,) = asked(app, f"{path}/search?{urlencode(query)}")
    report = checked(forecast)
    run = next(one for one in report.links if "run=1" in one)
    found = pages = 0
    while run:
        (answer,) = asked(app, run)
        report = checked(answer)
        found += answer.text.count('<article class="message')
        run = next((one for one in report.links if "cursor=" in one), "")
        pages += 1
    assert (found, pages >= 3) == (120, True)
    assert "as many as were asked for" in answer.text


@pytest.mark.parametrize("field", ["q", "from", "to", "max_bytes", "max_matches"])
def test_what_is_wrong_with_a_search_is_said_beside_the_field(
    app: Starlette, archive: ShownArchive, field: str
) -> None:
    path = path_of(archive.streams["busy"])
    given = {"q": "size > 1", field: "body ~ " if field == "q" else "nonsense"}
    (answer,) = asked(app, f"{path}/search?{urlencode(given)}")
    checked(answer)
    assert f'id="p-{field}"' in answer.text
    assert 'aria-invalid="true"' in answer.text


def test_a_stream_without_its_incarnation_leads_to_the_newest(app: Starlette, archive: ShownArchive) -> None:
    stream: StreamId = archive.streams["busy"]
    (answer,) = asked(app, path_of(stream).rpartition("/")[0])
    assert (answer.status_code, answer.headers["Location"]) == (303, path_of(stream))


def test_a_stream_is_not_found_under_the_names_of_another(app: Starlette, archive: ShownArchive) -> None:
    other = archive.streams[HOSTILE_TEXTS["look-alike"]]
    (answer,) = asked(app, f"{path_of(archive.streams['busy']).rpartition('/')[0]}/{other.incarnation}")
    checked(answer, 404)
