"""What protects a server without tokens from the web pages that its user's browser shows.

Any page may have the browser send requests to a loopback address. It cannot see the answers of another origin, but it
can POST; and if its own name is made to resolve to a loopback address, the browser takes the server for the page's own.
So a write with the Origin of a page that may not use the streams is refused, and every request for a host that is not
this server's. With tokens neither is needed: no browser sends one by itself.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request

from coldstream.web.refusal import FOREIGN_HOST, FOREIGN_PAGE, Refusal

_READS = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True, slots=True)
class OwnNames:
    """What a server is called beside loopback names, and the origins whose pages may write to it; * is any."""

    host_names: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()


def check_host(request: Request, own_names: OwnNames) -> None:
    """Raise Refusal for a request that is for another server: a page's name may have been made to resolve to this."""
    host = request.headers.get("host", "")
    if not is_loopback(_name(host)) and _name(host) not in own_names.host_names:
        raise Refusal(FOREIGN_HOST, f"{host[:80]!r} is not this server: --host-name says what else it is called")


def check_browser(request: Request, own_names: OwnNames) -> None:
    """Raise Refusal for a request that a page may have caused that has no business here."""
    check_host(request, own_names)
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if origin is None or request.method in _READS:
        return
    own = f"{request.url.scheme}://{host}"
    if origin != own and not {origin, "*"} & set(own_names.cors_origins):
        raise Refusal(FOREIGN_PAGE, f"pages of {origin[:80]!r} may not write here")


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
