"""Messages of a stream, a page at a time, and one on its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from starlette.concurrency import iterate_in_threadpool
from starlette.responses import Response, StreamingResponse

from coldstream.browse.body_view import BodyView
from coldstream.browse.download import DownloadPart, open_download
from coldstream.browse.message_listing import BeforeOffset, MessageQuery
from coldstream.browse.messages import list_messages, read_message
from coldstream.console.number_fields import number_of
from coldstream.console.page_headers import DOWNLOAD_POLICY
from coldstream.console.page_request import PageRequest
from coldstream.console.site import Site
from coldstream.console.stream_address import path_of
from coldstream.errors import InvalidQueryError
from coldstream.manifest.spec import FIRST, LAST, OffsetSpec, parse_offset_spec
from coldstream.units import Offset
from coldstream.web.refusal import TOO_LARGE, Refusal

PAGE_MESSAGES = 25
LEAST_GETS = 4
"""GETs of a page at most: one that ends with its fragment goes on in the next ones."""


class BodyForm(StrEnum):
    """How bodies are shown. AUTO: JSON if it is, else text if it is, else hex."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body as it is shown: in which form, and its text; `note` says why it is not in the form that was asked for."""

    form: BodyForm
    text: str
    note: str = ""

    @property
    def looks_like_json(self) -> bool:
        """Whether the text is likely JSON, or the beginning of it."""
        return self.text.lstrip().startswith(("{", "[")) and self.form is BodyForm.TEXT


def show_list(site: Site, asked: PageRequest) -> Response:
    """Show a page of messages. Cost: a Query and a GET, or a few."""
    stream = site.stream_of(asked)
    form = _form_of(asked)
    listing = list_messages(
        site.archive.table,
        site.archive.objects,
        stream,
        MessageQuery(_place_of(asked), limit=PAGE_MESSAGES, max_gets=LEAST_GETS),
    )
    path = f"{path_of(stream)}/messages"
    return site.page(
        asked,
        "messages.html",
        stream=stream,
        listing=listing,
        at=asked.query.get("at"),
        form=form,
        forms=list(BodyForm),
        bodies={message.offset: listed_body(message.body, form) for message in listing.messages},
        next_link=None if listing.next is None else asked.query.link(path, at=listing.next, before=None),
        previous_link=None if listing.previous is None else asked.query.link(path, before=listing.previous, at=None),
        first_link=asked.query.link(path, at="first", before=None),
        last_link=asked.query.link(path, at="last", before=None),
    )


def show_one(site: Site, asked: PageRequest) -> Response:
    """Show a message. Cost: a Query and a GET."""
    stream = site.stream_of(asked)
    form = _form_of(asked)
    offset = Offset(asked.request.path_params["offset"])
    message = read_message(site.archive.table, site.archive.objects, stream, offset)
    return site.page(
        asked,
        "message.html",
        stream=stream,
        message=message,
        form=form,
        forms=list(BodyForm),
        shown=shown_body(message.body, form),
    )


def download(site: Site, asked: PageRequest) -> Response:
    """Send a message, or its body, as a file: through the server, in blocks. Whatever it is, it is no page of ours."""
    stream = site.stream_of(asked)
    offset = Offset(asked.request.path_params["offset"])
    try:
        part = DownloadPart(asked.query.get("part") or DownloadPart.BODY.value)
    except ValueError:
        raise InvalidQueryError("part", f"is one of {', '.join(one.value for one in DownloadPart)}") from None
    found = open_download(site.archive.table, site.archive.objects, stream, offset, part)
    most = site.options.max_download_bytes
    if most is not None and found.size_bytes > most:
        detail = f"it has {found.size_bytes:,} bytes, and {most:,} are the most here: use `coldstream read`"
        raise Refusal(TOO_LARGE, detail)
    return StreamingResponse(
        iterate_in_threadpool(iter(found.blocks)),
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{found.file_name}"',
            "Content-Length": str(found.size_bytes),
            "Content-Security-Policy": DOWNLOAD_POLICY,
            "X-Content-Type-Options": "nosniff",
        },
    )


def listed_body(body: BodyView | None, form: BodyForm) -> ShownBody | None:
    """Return a body for a list: text as it was published, which takes the fewest lines, unless a form was asked for."""
    if body is not None and form is BodyForm.AUTO and (text := body.text) is not None and _is_readable(text):
        return ShownBody(BodyForm.TEXT, text)
    return shown_body(body, form)


def shown_body(body: BodyView | None, form: BodyForm) -> ShownBody | None:
    """Return a body in a form, or in another one if it is not that."""
    if body is None:
        return None
    note = ""
    if form in {BodyForm.AUTO, BodyForm.JSON}:
        pretty = body.json
        if pretty is not None:
            return ShownBody(BodyForm.JSON, pretty)
        if form is BodyForm.JSON:
            note = "cut, so not read as JSON" if body.is_cut else "not JSON"
    if form is not BodyForm.HEX:
        text = body.text
        if text is not None and (form is BodyForm.TEXT or _is_readable(text)):
            return ShownBody(BodyForm.TEXT, text, note)
        note = note or ("not UTF-8" if form is BodyForm.TEXT else "")
    return ShownBody(BodyForm.HEX, body.hex_dump, note)


def _is_readable(text: str) -> bool:
    """Whether a text is no binary data that happens to be UTF-8."""
    hidden = sum(not char.isprintable() and char not in "\n\r\t" for char in text[:2000])
    return hidden * 20 <= min(len(text), 2000)


def _form_of(asked: PageRequest) -> BodyForm:
    try:
        return BodyForm(asked.query.get("body") or BodyForm.AUTO)
    except ValueError:
        raise InvalidQueryError("body", f"is one of {', '.join(BodyForm)}") from None


def _place_of(asked: PageRequest) -> OffsetSpec | BeforeOffset:
    before = asked.query.get("before")
    if before:
        return BeforeOffset(Offset(number_of("before", before, 0)))
    at = asked.query.get("at").strip()
    if at == "last":
        return LAST
    return parse_offset_spec(at.replace(",", "") if at.replace(",", "").isdigit() else at, asked.now) if at else FIRST
