"""The headers of every answer, errors included: what a browser may do with it, and that nobody keeps it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content-Security-Policy of pages. Nothing inline, nothing of other origins, in no frame."""

DOWNLOAD_POLICY = "default-src 'none'; sandbox"
"""The policy of downloads: whatever they are, they are no page of ours."""

_EVERY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
_HSTS = "max-age=31536000"


class PageHeaders:
    """Adds the headers that an answer does not have itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, with these headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wanted = {**_EVERY, **({"Strict-Transport-Security": _HSTS} if scope["scheme"] == "https" else {})}

        async def send_safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in wanted.items()]
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in there)]
            await send(message)

        await self._app(scope, receive, send_safe)
