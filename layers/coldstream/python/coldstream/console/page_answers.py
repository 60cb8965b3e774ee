"""What every request goes through: who sent it, limits, where a change comes from, and errors that become pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from coldstream.console.change_guard import check_change
from coldstream.console.page_errors import PageError, error_of
from coldstream.console.page_request import FormFields, PageRequest, read_form
from coldstream.console.site import Site
from coldstream.console.visitor import Visitor
from coldstream.errors import ColdstreamError
from coldstream.units import now_ms
from coldstream.web.access_tokens import TokenHolder
from coldstream.web.browser_guard import OwnNames, check_host
from coldstream.web.refusal import FORBIDDEN, NO_METHOD, NO_PATH, Refusal
from coldstream.web.request_limits import RequestLimits

Page = Callable[[Site, PageRequest], Response]
"""Makes the answer to a request. It blocks, in a thread of its own."""

SECURE_COOKIE, COOKIE = "__Host-coldstream-session", "coldstream-session"
_LOG = logging.getLogger(__name__)
_NOBODY = Visitor(TokenHolder("nobody", ()), is_read_only=True)
_READS = {"GET", "HEAD"}


class PageAnswers:
    """Wraps pages into endpoints of Starlette."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._limits = RequestLimits(site.options.requests_per_s, max_live_reads=1)

    def of(self, page: Page, *, is_public: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint. A public page is shown to those who have not logged in, too."""

        async def endpoint(request: Request) -> Response:
            visitor: Visitor | None = None
            try:
                visitor = self._visitor_of(request)
                if visitor is None and not is_public:
                    return self._to_login(request)
                asked = await self._asked(request, visitor or _NOBODY)
                return await run_in_threadpool(page, self._site, asked)
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it
            except Exception as err:  # noqa: BLE001  the last place where anything can be said of it
                return await self._told(request, visitor or _NOBODY, err)

        return endpoint

    async def unrouted(self, request: Request, err: Exception) -> Response:
        """Answer for a path or method that there is not, as a page."""
        assert isinstance(err, HTTPException)
        kind = NO_METHOD if err.status_code == HTTPStatus.METHOD_NOT_ALLOWED else NO_PATH
        refusal = Refusal(kind, f"there is nothing at {request.url.path[:200]!r}", err.headers)
        try:
            visitor = self._visitor_of(request)
        except Refusal as other:
            return await self._told(request, _NOBODY, other)
        return await self._told(request, visitor or _NOBODY, refusal)

    def _visitor_of(self, request: Request) -> Visitor | None:
        """Return who sent a request, and count it; None if nobody has logged in. Raises Refusal."""
        options, sessions = self._site.options, self._site.sessions
        address = TokenHolder(f"address {request.client.host if request.client is not None else 'unknown'}")
        if sessions is None:
            self._limits.admit(address.name)
            check_host(request, OwnNames(options.host_names))
            return Visitor(address, options.is_read_only)
        holder = sessions.holder_of(request.cookies.get(session_cookie(request)), now_ms() / 1000)
        self._limits.admit((holder or address).name)
        return None if holder is None else Visitor(holder, options.is_read_only, has_session=True)

    async def _asked(self, request: Request, visitor: Visitor) -> PageRequest:
        form = FormFields()
        if request.method not in _READS:
            check_change(request)
            form = await read_form(request)
        query = FormFields.parse(request.url.query)
        return PageRequest(request, visitor, query, form, now_ms())

    def _to_login(self, request: Request) -> Response:
        if request.method not in _READS:
            raise Refusal(FORBIDDEN, "the session is over: log in again, and then send the form again")
        if request.headers.get("hx-request") == "true":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": "/login"})
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?to={quote(here, safe='')}", HTTPStatus.SEE_OTHER)

    async def _told(self, request: Request, visitor: Visitor, err: Exception) -> Response:
        told = error_of(err, shows_all=visitor.sees_all)
        if told.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _LOG.error(
                "a page failed",
                extra={"method": request.method, "path": request.url.path, "error": repr(err)},
                exc_info=None if isinstance(err, ColdstreamError | Refusal) else err,
            )
        asked = PageRequest(request, visitor, FormFields(), FormFields(), now_ms())
        return await run_in_threadpool(self._error_page, asked, told)

    def _error_page(self, asked: PageRequest, told: PageError) -> Response:
        response = self._site.page(asked, "error.html", told.status, told=told)
        response.headers.update(told.headers)
        if asked.is_part:
            # The page that is there stays, and says what went wrong.
            response.headers.update({"HX-Retarget": "#notice", "HX-Reselect": "#notice", "HX-Reswap": "outerHTML"})
            response.headers["HX-Push-Url"] = "false"
        return response


def session_cookie(request: Request) -> str:
    """Return the name of the cookie: with TLS, one that no other host and no plain connection can set."""
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE
