"""Tokens: who may read and write which streams.

A file has a line for each:

    sha256 of the token in hex, its name, its rights (r, w or rw), and a pattern of the names of streams

A name is what limits and logs know a token by, and may stand in several lines. Patterns are those of a shell: *, ?
and [abc]; a * matches slashes, too.
The file has no token itself: whoever reads it can use none. Empty lines and those that begin with # are nothing.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Flag, auto
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from coldstream.errors import InvalidSettingError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BEARER = re.compile(r"[Bb]earer +(?P<token>[A-Za-z0-9._~+/-]+=*)")
_FIELDS = 4


class Right(Flag):
    """What a token may do with a stream: read is GET and HEAD, write everything else."""

    READ = auto()
    WRITE = auto()


_RIGHTS = {"r": Right.READ, "w": Right.WRITE, "rw": Right.READ | Right.WRITE}


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """One line: a token may do something with the streams whose names match a pattern."""

    digest: str
    name: str
    rights: Right
    pattern: str


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Whoever sent a request: a name for limits and logs, and what it may do. Without tokens, everybody may do all."""

    name: str
    grants: tuple[TokenGrant, ...] | None = None

    def may(self, right: Right, stream: str) -> bool:
        """Whether the caller may do that with a stream."""
        if self.grants is None:
            return True
        return any(right in grant.rights and fnmatchcase(stream, grant.pattern) for grant in self.grants)


@dataclass(frozen=True, slots=True)
class AccessTokens:
    """The grants of all tokens."""

    grants: tuple[TokenGrant, ...]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> AccessTokens:
        """Read a file of tokens. Raises InvalidSettingError, which names the line and not what is in it."""
        grants = []
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            fields = text.split()
            if len(fields) != _FIELDS or not _DIGEST.fullmatch(fields[0]) or fields[2] not in _RIGHTS:
                raise InvalidSettingError("token_file", f"line {number} is not SHA256 NAME r|w|rw PATTERN")
            grants.append(TokenGrant(fields[0], fields[1], _RIGHTS[fields[2]], fields[3]))
        if not grants:
            raise InvalidSettingError("token_file", "has no token")
        return cls(tuple(grants))

    @classmethod
    def read(cls, path: Path) -> AccessTokens:
        """Read a file of tokens. Raises InvalidSettingError, also if everybody on the machine may write it; OSError."""
        if path.stat().st_mode & stat.S_IWOTH:
            raise InvalidSettingError("token_file", f"{path} can be written by everybody: chmod o-w")
        return cls.parse(path.read_text().splitlines())

    def caller_of(self, authorization: str | None) -> TokenHolder | None:
        """Return who has the token of an Authorization header; None if it has none, or one that is not known."""
        bearer = _BEARER.fullmatch(authorization or "")
        return None if bearer is None else self.holder_of_token(bearer["token"])

    def holder_of_token(self, token: str) -> TokenHolder | None:
        """Return who has a token, None if it is not known."""
        return self.holder_of_digest(sha256(token.encode(errors="surrogatepass")).hexdigest())

    def holder_of_digest(self, digest: str) -> TokenHolder | None:
        """Return who has the token with this SHA-256, None if it is not known."""
        # All are compared, each in constant time: how long it takes says nothing about any of them.
        found = [grant for grant in self.grants if compare_digest(grant.digest, digest)]
        return TokenHolder(f"token {found[0].name}", tuple(found)) if found else None
