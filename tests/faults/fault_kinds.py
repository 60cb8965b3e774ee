"""The ways in which a store's answer can be wrong, or not come."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.faults.http_messages import HttpAnswer, HttpRequest, answer, refusal


class FaultKind(StrEnum):
    """What becomes of a request."""

    ERROR_500 = "500"
    """Refused, and not carried out."""
    SLOW_DOWN_503 = "503"
    TIMEOUT_BEFORE = "timeout before"
    """Not carried out, and nobody answers."""
    TIMEOUT_AFTER = "timeout after"
    """Carried out, and nobody answers."""
    CUT = "cut"
    """The connection ends in the middle of the answer."""
    WRONG_BYTES = "wrong bytes"
    """A byte of the answer is another; only where AWS sends a checksum, as nothing else could notice it."""
    WRONG_LENGTH = "wrong length"
    """The answer says that it is shorter than it is: the rest is missing."""
    WRONG_CHECKSUM = "wrong checksum"
    REDIRECT = "redirect"
    """To a place where there is nothing."""
    SLOW = "slow"
    """The answer comes byte by byte."""
    RESET = "reset"
    """The connection breaks; every other request was carried out."""
    STALE = "stale"
    """The answer is what it was before the last write, where AWS may do that."""
    DENIED = "denied"
    PROXY_PAGE = "proxy page"
    """Somebody else answers: a page, with status 200."""


class Ending(StrEnum):
    """What comes after the bytes of an answer."""

    OPEN = "open"
    CLOSED = "closed"
    SILENT = "silent"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """What a client reads: these bytes, at most so many at once, and then that. `is_right` if nothing is wrong."""

    data: bytes = b""
    ending: Ending = Ending.OPEN
    piece_bytes: int = 1 << 16
    is_right: bool = False


_CHECKSUM = re.compile(r"x-amz-(crc32|checksum-[a-z0-9]+)")
_PAGE = b"<html><body>Please log in to the network.</body></html>"
CarryOut = Callable[[], HttpAnswer]


def takes_effect(kind: FaultKind, request: HttpRequest, found: HttpAnswer, earlier: HttpAnswer | None) -> bool:
    """Tell whether a kind of fault makes another answer of the right one: some need a body, or a checksum."""
    match kind:
        case FaultKind.STALE:
            return earlier is not None and request.may_be_stale and earlier.body != found.body
        case FaultKind.WRONG_BYTES:
            return bool(found.body) and (request.is_dynamodb or request.reads_object)
        case FaultKind.WRONG_LENGTH:
            return bool(found.body)
        case FaultKind.WRONG_CHECKSUM:
            return any(_CHECKSUM.fullmatch(name.lower()) for name, _ in found.fields)
    return True


def misbehave(  # noqa: C901, PLR0911, PLR0912  one of them each
    kind: FaultKind, request: HttpRequest, carry_out: CarryOut, *, number: int, earlier: HttpAnswer | None
) -> WireAnswer:
    """Answer a request in a wrong way. `earlier` is what the answer was a moment before.

    Where the kind takes no effect, the answer is the right one, and says so.
    """
    match kind:
        case FaultKind.ERROR_500:
            return _whole(refusal(request, "500 Internal Server Error", "InternalError"))
        case FaultKind.SLOW_DOWN_503:
            code = "ThrottlingException" if request.is_dynamodb else "SlowDown"
            return _whole(refusal(request, "503 Service Unavailable", code))
        case FaultKind.DENIED:
            code = "AccessDeniedException" if request.is_dynamodb else "AccessDenied"
            return _whole(refusal(request, "403 Forbidden" if not request.is_dynamodb else "400 Bad Request", code))
        case FaultKind.TIMEOUT_BEFORE:
            return WireAnswer(ending=Ending.SILENT)
        case FaultKind.REDIRECT:
            where = ("Location", "http://127.0.0.1:1/")
            return _whole(answer("307 Temporary Redirect", b"", where, ("x-amz-request-id", "of-a-test")))
        case FaultKind.PROXY_PAGE:
            return _whole(answer("200 OK", b"" if request.method == "HEAD" else _PAGE, ("Content-Type", "text/html")))
        case FaultKind.RESET if number % 2:
            return WireAnswer(ending=Ending.BROKEN)
    found = carry_out()
    if not takes_effect(kind, request, found, earlier):
        return WireAnswer(found.to_bytes(), is_right=True)
    match kind:
        case FaultKind.STALE if earlier is not None:
            return _whole(earlier)
        case FaultKind.TIMEOUT_AFTER:
            return WireAnswer(ending=Ending.SILENT)
        case FaultKind.RESET:
            return WireAnswer(ending=Ending.BROKEN)
        case FaultKind.CUT:
            data = found.to_bytes()
            # Within the body, if there is one.
            keep = len(data) - (len(found.body) + 1) // 2 if found.body else len(data) // 2
            return WireAnswer(data[:keep], Ending.CLOSED)
        case FaultKind.WRONG_BYTES:
            at = number * 7919 % len(found.body)
            body = found.body[:at] + bytes((found.body[at] ^ 0x01,)) + found.body[at + 1 :]
            return _whole(replace(found, body=body))
        case FaultKind.WRONG_LENGTH:
            return _whole(replace(found, body=found.body[:-1]).with_field("content-length", str(len(found.body) - 1)))
        case FaultKind.WRONG_CHECKSUM:
            return _whole(replace(found, fields=tuple(map(_other_checksum, found.fields))))
    return WireAnswer(found.to_bytes(), piece_bytes=1)  # slow


def _whole(found: HttpAnswer) -> WireAnswer:
    return WireAnswer(found.to_bytes())


def _other_checksum(field: tuple[str, str]) -> tuple[str, str]:
    name, value = field
    if not _CHECKSUM.fullmatch(name.lower()):
        return field
    return name, str(int(value) ^ 1) if value.isdigit() else ("B" if value[0] == "A" else "A") + value[1:]
