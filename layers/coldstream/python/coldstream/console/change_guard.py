"""What keeps pages of other origins from changing anything: every request that is no read shows where it came from.

Browsers send Origin with every POST, and today's send Sec-Fetch-Site, too; no page can set either. One is enough. A
request with neither is refused: it is no form of a page of ours, whatever cookies it has.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request

from coldstream.web.refusal import FOREIGN_PAGE, Refusal

_OWN_SITE = "same-origin"


def check_change(request: Request) -> None:
    """Raise Refusal for a change that no page of this server asked for."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    if site is not None and site != _OWN_SITE:
        raise Refusal(FOREIGN_PAGE, f"a page of another site may not change anything here ({site[:20]})")
    if origin is None:
        if site is None:
            raise Refusal(FOREIGN_PAGE, "it has neither Origin nor Sec-Fetch-Site: use the forms of these pages")
        return
    if _parts(origin) != (request.url.scheme, request.headers.get("host", "").lower()):
        raise Refusal(FOREIGN_PAGE, f"pages of {origin[:80]!r} may not change anything here")


def _parts(origin: str) -> tuple[str, str]:
    try:
        found = urlsplit(origin)
    except ValueError:
        return "", ""
    return found.scheme, found.netloc.lower()
