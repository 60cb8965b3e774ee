"""Who may read which streams: patterns of streams, as tokens carry them, and grants to principals of IAM.

    {vhost}/{stream}        both percent-encoded, `*` for any characters, also none: `%2F/orders*`, `*/*`

That is the form of the scopes of RabbitMQ's own OAuth 2 plugin. Where vhost or stream have a `*` or a `/`, it is `%2A`
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
"""Where a token has its scopes, unless it is said to have them elsewhere."""

MAX_GRANT_BYTES = 1000
"""Of principal and pattern together: they are a sort key of the table, which may have 1,024."""

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
        """Tell whether text is of that form; takes time in proportion to both, whatever they are."""
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
    """Streams by their names: those in the vhosts that `vhost` matches, whose own names `name` does."""

    vhost: Wildcard
    name: Wildcard

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a pattern. Raises InvalidInputError."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidInputError(
                "pattern", f"{text[:80]!r} is not VHOST/STREAM, percent-encoded, such as %2F/orders*"
            )
        return cls(_wildcard(match["vhost"]), _wildcard(match["name"]))

    def matches(self, vhost: str, name: str) -> bool:
        """Tell whether a stream is one of these."""
        return self.vhost.matches(vhost) and self.name.matches(name)


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave for the principals of IAM that `principal` matches, an ARN or a part of one with `*`, to read `streams`."""

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
        """Tell whether a principal, by any of its names, is one of those."""
        pattern = Wildcard(tuple(self.principal.split("*")))
        return any(pattern.matches(principal) for principal in principals)

    def matches(self, vhost: str, name: str) -> bool:
        """Tell whether a stream is one of those."""
        return _pattern(self.streams).matches(vhost, name)


def patterns_in(scopes: Iterable[str]) -> tuple[StreamPattern, ...]:
    """Return what scopes let read. Those of others, and those that mean nothing, let read nothing."""
    found = []
    for scope in scopes:
        if scope.startswith(READ_SCOPE):
            try:
                found.append(StreamPattern.from_text(scope.removeprefix(READ_SCOPE)))
            except InvalidInputError:
                continue
    return tuple(found)


def names_of_principal(arn: str) -> tuple[str, ...]:
    """Return a principal's ARN, and where it is a session of a role the role's too, without its path."""
    match = _SESSION.fullmatch(arn)
    return (arn,) if match is None else (arn, f"arn:{match['partition']}:iam::{match['account']}:role/{match['name']}")


def without_path(principal: str) -> str:
    """Leave the path out of a role's ARN: the ARN of a session, which is what there is to compare, does not tell it."""
    match = _ROLE.fullmatch(principal)
    return principal if match is None else f"{match['begin']}/{match['name']}"


def _wildcard(text: str) -> Wildcard:
    if not _ESCAPES.fullmatch(text):
        raise InvalidInputError("pattern", f"{text[:80]!r} has a % that is not the start of %XX: a % itself is %25")
    try:
        return Wildcard(tuple(unquote(part, errors="strict") for part in text.split("*")))
    except UnicodeDecodeError as err:
        raise InvalidInputError("pattern", f"{text[:80]!r} does not stand for UTF-8") from err


@lru_cache(maxsize=1000)
def _pattern(text: str) -> StreamPattern:
    return StreamPattern.from_text(text)
