"""Who sees and changes what: by the patterns of their token, on every page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from starlette.applications import Starlette

from coldstream.console.stream_address import path_of
from coldstream.console.visitor import Visitor
from coldstream.jobs.job import Job
from coldstream.jobs.specs import parse_spec
from coldstream.units import now_ms
from coldstream.web.access_tokens import AccessTokens, TokenHolder
from coldstream.web.refusal import Refusal
from tests.support.amqp_samples import encode
from tests.support.console_app import UNLIMITED, access_of, browser, console
from tests.support.serving import tokens
from tests.support.shown_archive import ShownArchive

KNOWN = tokens("all ops rw *", "some shop r orders*", "some shop w orders-eu", "look guest r *")


class Scene:
    """An archive with three streams and a job for each, and the console over it."""

    def __init__(self) -> None:
        self.archive = ShownArchive(now_ms())
        for name in ("orders", "orders-eu", "salaries"):
            self.archive.add(name, [encode(body=name.encode())] * 3)
        self.access = access_of(self.archive)
        self.jobs = {name: self.job(name) for name in self.archive.streams}
        self.everything = self.access.jobs.create(parse_spec({"kind": "scrub"}))

    def job(self, name: str) -> Job:
        return self.access.jobs.create(parse_spec({"kind": "compact", "streams": [name], "name": f"compact {name}"}))

    def app(self, *, is_read_only: bool = False) -> Starlette:
        return console(access=self.access, tokens=KNOWN, options=replace(UNLIMITED, is_read_only=is_read_only))


@pytest.fixture
def scene() -> Scene:
    return Scene()


@asynccontextmanager
async def logged_in(app: Starlette, token: str) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(app) as client:
        assert (await client.post("/login", data={"token": token})).status_code == 303
        yield client


def asked(scene: Scene, token: str, *paths: str) -> list[httpx.Response]:
    async def run() -> list[httpx.Response]:
        async with logged_in(scene.app(), token) as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(run())


def test_whoever_has_not_logged_in_is_led_to_the_login_and_back(scene: Scene) -> None:
    async def run() -> None:
        async with browser(scene.app()) as client:
            for path in ("/streams?sort=lag", path_of(scene.archive.streams["orders"]), "/jobs", "/health", "/nothing"):
                answer = await client.get(path)
                assert "orders" not in answer.text
                if path != "/nothing":
                    assert answer.status_code == 303
                    assert answer.headers["Location"].startswith("/login?to=")
            part = await client.get("/jobs", headers={"HX-Request": "true"})
            assert (part.status_code, part.headers["HX-Redirect"]) == (204, "/login")
            assert (await client.post(f"/jobs/{scene.everything.id}/pause", data={"x": ""})).status_code == 403
            found = await client.post("/login", data={"token": "all", "to": "/streams?sort=lag"})
            assert found.headers["Location"] == "/streams?sort=lag"

    asyncio.run(run())


def test_a_session_is_a_cookie_that_no_script_and_no_other_site_gets(scene: Scene) -> None:
    async def run(base_url: str) -> str:
        async with browser(scene.app(), base_url) as client:
            return (await client.post("/login", data={"token": "all"})).headers["Set-Cookie"]

    plain = asyncio.run(run("http://localhost")).lower()
    secure = asyncio.run(run("https://localhost")).lower()
    for cookie in (plain, secure):
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "path=/;" in cookie + ";"
        assert "domain" not in cookie
    assert plain.startswith("coldstream-session=")
    assert "secure" not in plain
    assert secure.startswith("__host-coldstream-session=")
    assert "secure" in secure


@pytest.mark.parametrize(
    "to", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\r\nX: y", "/é"]
)
def test_a_login_leads_nowhere_else(scene: Scene, to: str) -> None:
    async def run() -> list[str]:
        async with browser(scene.app()) as client:
            logged = await client.post("/login", data={"token": "all", "to": to})
            themed = await client.post("/theme", data={"theme": "dark", "to": to})
            return [logged.headers["Location"], themed.headers["Location"]]

    assert asyncio.run(run()) == ["/streams", "/streams"]


def test_the_list_and_its_sums_are_of_what_may_be_read(scene: Scene) -> None:
    for token, names in (("all", {"orders", "orders-eu", "salaries"}), ("some", {"orders", "orders-eu"})):
        (page,) = asked(scene, token, "/streams")
        shown = {name for name in scene.archive.streams if f">{name}</bdi></a>" in page.text}
        assert shown == names
        assert f"{len(names)} streams" in page.text
    searched, vhosts = asked(scene, "some", "/streams?search=sal", "/streams?vhost=%2F")
    assert "No stream matches" in searched.text
    assert "salaries" not in vhosts.text


def test_a_stream_that_may_not_be_read_is_refused_whether_it_is_there_or_not(scene: Scene) -> None:
    path = path_of(scene.archive.streams["salaries"])
    views = [
        "",
        "/messages",
        "/messages/0",
        "/messages/0/download",
        "/fragments",
        "/chunks",
        "/entries",
        "/search?q=size>1",
    ]
    answers = asked(scene, "some", *(path + view for view in views), path.rpartition("/")[0])
    other = path.replace("salaries", "nothing")
    answers += asked(scene, "some", *(other + view for view in views))
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.text.replace("nothing", "salaries").partition("<main")[2][:600] for answer in answers[:1]}) == 1


def test_jobs_are_shown_by_the_streams_that_they_work_on(scene: Scene) -> None:
    (page,) = asked(scene, "some", "/jobs")
    assert "compact orders-eu" in page.text
    assert "salaries" not in page.text
    assert scene.everything.id not in page.text
    hidden, nothing, seen = asked(
        scene, "some", f"/jobs/{scene.jobs['salaries'].id}", "/jobs/nothing", f"/jobs/{scene.jobs['orders'].id}"
    )
    assert (hidden.status_code, nothing.status_code, seen.status_code) == (403, 404, 200)


def test_jobs_are_changed_by_who_may_write_their_streams(scene: Scene) -> None:
    async def run() -> dict[str, list[int]]:
        found = {}
        for token in ("some", "look", "all"):
            async with logged_in(scene.app(), token) as client:
                codes = []
                for name in scene.archive.streams:
                    job = scene.job(name)
                    sent = {"confirm": f"compact {name}"}
                    for verb in ("pause", "resume", "cancel"):
                        answer = await client.post(f"/jobs/{job.id}/{verb}", data=sent)
                        codes += [answer.status_code]
                found[token] = codes
        return found

    found = asyncio.run(run())
    assert found["all"] == [303] * 9
    assert found["look"] == [403] * 9
    assert found["some"] == [403] * 3 + [303] * 3 + [403] * 3


def test_with_read_only_no_token_changes_anything(scene: Scene) -> None:
    async def run() -> None:
        job = scene.jobs["orders"]
        async with logged_in(scene.app(is_read_only=True), "all") as client:
            for path in (f"/jobs/{job.id}/pause", f"/jobs/{job.id}/edit", "/jobs/new"):
                assert (await client.post(path, data={"kind": "scrub", "step": "create"})).status_code == 403
            assert (await client.get("/jobs/new")).status_code == 403
            page = await client.get(f"/jobs/{job.id}")
            assert "act-pause" not in page.text

    asyncio.run(run())


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({"kind": "compact", "streams": ["orders-eu"]}, True),
        ({"kind": "compact", "streams": ["orders-eu", "orders"]}, False),
        ({"kind": "compact", "streams": ["orders-*"]}, False),
        ({"kind": "compact", "streams": []}, False),
        ({"kind": "scrub"}, False),
        ({"kind": "erase", "stream": "orders-eu", "offsets": "1:2", "reason": "r"}, True),
        ({"kind": "erase", "stream": "salaries", "offsets": "1:2", "reason": "r"}, False),
        ({"kind": "export", "streams": ["orders-eu"], "destination": "/etc"}, False),
        ({"kind": "load", "streams": ["orders-eu"], "target": {"type": "stream", "name": "orders-eu"}}, True),
        ({"kind": "load", "streams": ["orders-eu"], "target": {"type": "stream", "name": "salaries"}}, False),
        ({"kind": "load", "streams": ["orders-eu"], "target": {"type": "super_stream", "name": "orders-eu"}}, False),
        ({"kind": "load", "streams": ["orders-eu"], "target": {"type": "exchange", "name": "x"}}, False),
        ({"kind": "load", "streams": ["orders-eu"], "target": {"type": "table", "path": "/tmp/x"}}, False),
    ],
    ids=str,
)
def test_a_job_needs_the_right_to_write_all_that_it_touches(spec: dict[str, object], *, may: bool) -> None:
    holder = KNOWN.holder_of_token("some")
    assert holder is not None
    assert Visitor(holder).may_change(parse_spec(spec)) is may
    with pytest.raises(Refusal):
        Visitor(holder, is_read_only=True).check_change(parse_spec(spec))


@pytest.mark.parametrize(
    ("granted", "pattern", "is_within"),
    [
        ("*", "*", True),
        ("*", "a?c[x]*", True),
        ("orders*", "orders-*", True),
        ("orders*", "orders", True),
        ("orders*", "*", False),
        ("orders*", "o*", False),
        ("orders*", "ord*", False),
        ("orders-?", "orders-?", True),
        ("orders-?", "orders-*", False),
        ("orders[12]", "orders1", True),
        ("orders[12]*", "orders1*", False),
        ("*-eu", "orders-*", False),
        ("a*b", "a*b", True),
        ("a*b*", "a*b?", False),
    ],
)
def test_a_pattern_is_permitted_only_within_a_grant(granted: str, pattern: str, *, is_within: bool) -> None:
    known: AccessTokens = tokens(f"x name r {granted}")
    holder: TokenHolder | None = known.holder_of_token("x")
    assert holder is not None
    assert Visitor(holder).may_read_like(pattern) is is_within
