"""Login, logout, and how pages look."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from coldstream.console.page_answers import session_cookie
from coldstream.console.page_request import PageRequest
from coldstream.console.rendering import THEME_COOKIE, THEMES
from coldstream.console.site import Site

_YEAR_S = 365 * 86_400
_HOME = "/streams"
_MAX_PATH = 4000


def show_login(site: Site, asked: PageRequest) -> Response:
    """Show the form that takes a token."""
    if site.sessions is None or asked.visitor.has_session:
        return RedirectResponse(_own_path(asked.query.get("to")), HTTPStatus.SEE_OTHER)
    return site.page(asked, "login.html", to=_own_path(asked.query.get("to")), problem="")


def log_in(site: Site, asked: PageRequest) -> Response:
    """Begin a session for whoever has a token that is known."""
    to = _own_path(asked.form.get("to"))
    if site.sessions is None:
        return RedirectResponse(to, HTTPStatus.SEE_OTHER)
    value = site.sessions.begin(asked.form.get("token").strip(), asked.now / 1000)
    if value is None:
        problem = "This token is not known here."
        return site.page(asked, "login.html", HTTPStatus.UNAUTHORIZED, to=to, problem=problem)
    response = RedirectResponse(to, HTTPStatus.SEE_OTHER)
    response.set_cookie(
        session_cookie(asked.request),
        value,
        max_age=site.sessions.session_s,
        secure=asked.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def log_out(site: Site, asked: PageRequest) -> Response:
    """End a session in the browser."""
    del site
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER, {"Clear-Site-Data": '"cache"'})
    is_secure = asked.request.url.scheme == "https"
    response.delete_cookie(session_cookie(asked.request), secure=is_secure, httponly=True, samesite="strict")
    return response


def set_theme(site: Site, asked: PageRequest) -> Response:
    """Keep how pages look: light, dark, or as the system is."""
    del site
    response = RedirectResponse(_own_path(asked.form.get("to")), HTTPStatus.SEE_OTHER)
    theme = asked.form.get("theme")
    response.set_cookie(
        THEME_COOKIE,
        theme if theme in THEMES else THEMES[0],
        max_age=_YEAR_S,
        secure=asked.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def _own_path(to: str) -> str:
    """Return a path of this console, whatever was asked for: nobody is sent to another site from here."""
    is_path = to.startswith("/") and not to.startswith("//") and to.isascii() and to.isprintable()
    return to if is_path and "\\" not in to and len(to) <= _MAX_PATH else _HOME
