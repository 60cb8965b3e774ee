"""The routes of the console.

/streams                                      the list of streams
/streams/{vhost}/{name}/{incarnation}         one stream: facts and timeline; names as in stream_address.py
  …/messages, …/messages/{offset}             messages, one message; …/download
  …/fragments, …/chunks, …/entries            what lies beneath
  …/search                                    messages that a predicate holds for
/jobs, /jobs/new, /jobs/{job}, …/edit         jobs
/health                                       what is wrong, and what to do
/login, /logout, /theme                       who looks, and how
/static/{digest}/{file}, /healthz
"""

from __future__ import annotations

import logging
import time
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coldstream.console.archive_access import ArchiveAccess
from coldstream.console.console_options import ConsoleOptions
from coldstream.console.page_answers import Page, PageAnswers
from coldstream.console.page_headers import PageHeaders
from coldstream.console.page_request import PageRequest
from coldstream.console.pages import (
    beneath_pages,
    health_page,
    job_changes,
    job_creation,
    job_pages,
    message_pages,
    search_page,
    stream_page,
    streams_page,
    visit_pages,
)
from coldstream.console.permitted_streams import PermittedStreams
from coldstream.console.rendering import Rendering
from coldstream.console.sessions import Sessions
from coldstream.console.site import Site
from coldstream.console.static_files import read_static_files
from coldstream.web.access_tokens import AccessTokens

_LOG = logging.getLogger(__name__)
_STREAM = "/streams/{vhost}/{name}/{incarnation}"

_GETS: dict[str, Page] = {
    "/streams": streams_page.show,
    "/streams/{vhost}/{name}": stream_page.newest,
    _STREAM: stream_page.show,
    f"{_STREAM}/messages": message_pages.show_list,
    f"{_STREAM}/messages/{{offset:int}}": message_pages.show_one,
    f"{_STREAM}/messages/{{offset:int}}/download": message_pages.download,
    f"{_STREAM}/fragments": beneath_pages.show_fragments,
    f"{_STREAM}/chunks": beneath_pages.show_chunks,
    f"{_STREAM}/entries": beneath_pages.show_entries,
    f"{_STREAM}/search": search_page.show,
    "/jobs": job_pages.show_list,
    "/jobs/new": job_creation.show,
    "/jobs/{job}": job_pages.show_one,
    "/jobs/{job}/edit": job_changes.show_edit,
    "/health": health_page.show,
}
_POSTS: dict[str, Page] = {
    "/jobs/new": job_creation.create,
    "/jobs/{job}/edit": job_changes.edit,
    "/jobs/{job}/pause": job_changes.pause,
    "/jobs/{job}/resume": job_changes.resume,
    "/jobs/{job}/cancel": job_changes.cancel,
    "/jobs/{job}/delete": job_changes.delete,
}


def make_console(
    archive: ArchiveAccess,
    options: ConsoleOptions | None = None,
    tokens: AccessTokens | None = None,
    session_key: bytes | None = None,
) -> Starlette:
    """Return the application. Without a key, sessions are known to this application alone."""
    options = options or ConsoleOptions()
    static = read_static_files()
    sessions = None if tokens is None else Sessions(tokens, session_key, options.session_s)
    answers = PageAnswers(Site(archive, options, Rendering(static), sessions, PermittedStreams(archive.catalogue)))
    by_url = {file.url: file for file in static.values()}

    async def show_static(request: Request) -> Response:
        file = by_url.get(request.url.path)
        if file is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return file.response

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Starlette(
        routes=[
            Route("/", answers.of(_home)),
            Route("/healthz", health),
            Route("/static/{digest}/{file}", show_static),
            Route("/login", answers.of(visit_pages.show_login, is_public=True), methods=["GET"]),
            Route("/login", answers.of(visit_pages.log_in, is_public=True), methods=["POST"]),
            Route("/logout", answers.of(visit_pages.log_out, is_public=True), methods=["POST"]),
            Route("/theme", answers.of(visit_pages.set_theme, is_public=True), methods=["POST"]),
            *(Route(path, answers.of(page), methods=["GET"]) for path, page in _GETS.items()),
            *(Route(path, answers.of(page), methods=["POST"]) for path, page in _POSTS.items()),
        ],
        middleware=[Middleware(_RequestLog), Middleware(PageHeaders)],
        exception_handlers={HTTPException: answers.unrouted},
    )


def _home(_: Site, asked: PageRequest) -> Response:
    del asked
    return RedirectResponse("/streams", HTTPStatus.SEE_OTHER)


class _RequestLog:
    """A line in the log for each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            took_s = round(time.monotonic() - began, 4)
            told = {"method": scope["method"], "path": scope["path"], "status": status, "took_s": took_s}
            _LOG.info("request", extra=told)
