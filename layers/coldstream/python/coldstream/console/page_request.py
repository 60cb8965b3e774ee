"""A request for a page: its query, its form, and who sent it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request

from coldstream.console.visitor import Visitor
from coldstream.units import KIB, TimestampMs
from coldstream.web.refusal import INVALID, TOO_LARGE, Refusal

MAX_FORM_BYTES = 256 * KIB
MAX_FORM_FIELDS = 200
FORM_TYPE = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class FormFields:
    """What was typed into a form: a field may be there several times."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def parse(cls, text: str) -> FormFields:
        """Read a query or the body of a form. Raises Refusal."""
        try:
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
        except ValueError as err:
            raise Refusal(INVALID, f"the form cannot be read: {err}") from err
        found: dict[str, tuple[str, ...]] = {}
        for name, value in pairs:
            found[name] = (*found.get(name, ()), value)
        return cls(MappingProxyType(found))

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return self.values[name][-1] if name in self.values else default

    def all(self, name: str) -> Sequence[str]:
        """Return all values of a field."""
        return self.values.get(name, ())

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def link(self, path: str, **changes: object) -> str:
        """Return a link to a path with these fields; changed ones take the place of theirs, None leaves a field out."""
        values: dict[str, tuple[str, ...]] = dict(self.values)
        values |= {name: (str(value),) for name, value in changes.items() if value is not None}
        pairs = [(name, value) for name, some in values.items() for value in some if value != ""]
        kept = [pair for pair in pairs if pair[0] not in changes or changes[pair[0]] is not None]
        return f"{path}?{urlencode(kept)}" if kept else path


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request: `query` is of the URL, `form` of the body. `is_part` says that htmx asks, for a part of the page."""

    request: Request
    visitor: Visitor
    query: FormFields
    form: FormFields
    now: TimestampMs

    @property
    def is_part(self) -> bool:
        """Whether htmx asks, and puts a part of the answer into a page that is there."""
        is_restored = self.request.headers.get("hx-history-restore-request") == "true"
        return self.request.headers.get("hx-request") == "true" and not is_restored

    @property
    def path(self) -> str:
        """The path of the page, as it is in a URL."""
        return quote(self.request.url.path, safe="/~")


async def read_form(request: Request) -> FormFields:
    """Read the body of a form. Raises Refusal if it is too large, or no form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise Refusal(INVALID, f"the body is not {FORM_TYPE}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise Refusal(TOO_LARGE, f"a form has {MAX_FORM_BYTES} bytes at most")
    try:
        return FormFields.parse(body.decode("ascii"))
    except UnicodeDecodeError as err:
        raise Refusal(INVALID, "the form is not percent-encoded") from err
