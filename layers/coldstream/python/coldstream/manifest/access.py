"""Who may read which streams: patterns of streams, as tokens carry them, and grants to principals of IAM.

    {vhost}/{stream}        both percent-encoded, `*` for any characters, also none: `%2F/orders*`, `*/*`

This is the form of the scopes of RabbitMQ's own OAuth 2 plugin. A `*` or `/` in the name of a vhost or stream is `%2A`
or `%2F` in the pattern. A scope is such a pattern after `coldstream.read:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import unquote

from coldstream.errors import InvalidInputError
from coldstream.units import TimestampMs

READ_SCOPE = "coldstream.read:"

SCOPE_CLAIM = "scope"
"""The claim of a token that holds its scopes, unless the settings name another."""

MAX_GRANT_BYTES = 1000
"""Bytes of principal and pattern together: they are a sort key of the table, which may have 1,024."""

_PATTERN = re.compile(r"(?P<vhost>[^\s/]+)/(?P<name>[^\s/]+)")
_ESCAPES = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")
_PRINCIPAL = re.compile(r"[!-~]+")
_ROLE = re.compile(r"(?P<begin>arn:[^:]+:iam::[^:]*:role)/(?:.*/)?(?P<name>[^/]+)")
_SESSION = re.compile(r"arn:(?P<partition>[^:]+):sts::(?P<account>[0-9]+):assumed-role/(?P<name>[^/]+)/.+")


@dataclass(frozen=True, slots=True)
class Wildcard:
    """Text with any characters between its parts."""

    parts: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Tell whether text has this form, in time proportional to both: a hostile pattern cannot stall a request."""
        first, *middle = self.parts
        if not middle:
            return text == first
        last = middle.pop()
        at, end = len(first), len(text) - len(last)
        if at > end or not text.startswith(first) or not text.endswith(last):
            return False
        for part in middle:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


@dataclass(frozen=True, slots=True)
class StreamPattern:
    """The streams whose vhost matches `vhost` and whose name matches `name`."""

    vhost: Wildcard
    name: Wildcard

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a pattern. Raises InvalidInputError."""
        try:
            text.encode()
        except UnicodeEncodeError as err:
            raise InvalidInputError("pattern", f"{text[:80]!r} is not text that UTF-8 can hold") from err
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidInputError(
                "pattern", f"{text[:80]!r} is not VHOST/STREAM, percent-encoded, such as %2F/orders*"
            )
        return cls(_wildcard(match["vhost"]), _wildcard(match["name"]))

    def matches(self, vhost: str, name: str) -> bool:
        """Tell whether the pattern covers a stream."""
        return self.vhost.matches(vhost) and self.name.matches(name)


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission for the IAM principals that `principal` matches, an ARN which may contain `*`, to read `streams`."""

    principal: str
    streams: str
    at: TimestampMs | None = None

    def __post_init__(self) -> None:
        StreamPattern.from_text(self.streams)
        if not _PRINCIPAL.fullmatch(self.principal):
            raise InvalidInputError("principal", f"{self.principal[:80]!r} is not the ARN of a principal, or a pattern")
        size_bytes = len(f"{self.principal} {self.streams}".encode())
        if size_bytes > MAX_GRANT_BYTES:
            raise InvalidInputError(
                "pattern", f"has {size_bytes} bytes with its principal, of {MAX_GRANT_BYTES} at most"
            )

    def is_for(self, principals: Iterable[str]) -> bool:
        """Tell whether the grant covers a principal, by any of its names."""
        pattern = Wildcard(tuple(self.principal.split("*")))
        return any(pattern.matches(principal) for principal in principals)

    def matches(self, vhost: str, name: str) -> bool:
        """Tell whether the grant covers a stream."""
        return pattern_of(self.streams).matches(vhost, name)


def patterns_in(scopes: Iterable[str]) -> tuple[StreamPattern, ...]:
    """Return the patterns of streams that scopes permit to read. Foreign and malformed scopes permit nothing."""
    found = []
    for scope in scopes:
        if scope.startswith(READ_SCOPE):
            try:
                found.append(StreamPattern.from_text(scope.removeprefix(READ_SCOPE)))
            except InvalidInputError:
                continue
    return tuple(found)


def names_of_principal(arn: str) -> tuple[str, ...]:
    """Return a principal's ARN and, for a session of a role, also the ARN of the role, without its path."""
    match = _SESSION.fullmatch(arn)
    return (arn,) if match is None else (arn, f"arn:{match['partition']}:iam::{match['account']}:role/{match['name']}")


def without_path(principal: str) -> str:
    """Drop the path from a role's ARN: it is compared with the ARN of a session, which has no path."""
    match = _ROLE.fullmatch(principal)
    return principal if match is None else f"{match['begin']}/{match['name']}"


def _wildcard(text: str) -> Wildcard:
    if not _ESCAPES.fullmatch(text):
        raise InvalidInputError("pattern", f"{text[:80]!r} has a % that is not the start of %XX: a % itself is %25")
    try:
        # Split before decoding: `%2A` is a star in the name, and must not become a wildcard.
        return Wildcard(tuple(unquote(part, errors="strict") for part in text.split("*")))
    except UnicodeDecodeError as err:
        raise InvalidInputError("pattern", f"{text[:80]!r} does not stand for UTF-8") from err


@lru_cache(maxsize=1000)
def pattern_of(text: str) -> StreamPattern:
    """Return the pattern that a text is; those of an archive are read again and again. Raises InvalidInputError."""
    return StreamPattern.from_text(text)
