"""Tokens (JWT) for the resolver's second API: where a client has them from, and where it sends them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from coldstream.errors import InvalidSettingError

Token = str | Callable[[], str]
"""A token, or what returns one that is good now: it is called for each request."""

VARIABLE = "COLDSTREAM_TOKEN"
FILE_VARIABLE = "COLDSTREAM_TOKEN_FILE"

_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750's b64token."""


def token_from_environment(environment: Mapping[str, str] = os.environ) -> Token | None:
    """Return the token of COLDSTREAM_TOKEN, or of the file that COLDSTREAM_TOKEN_FILE names; None without either.

    The file is read again for each request, for those who put a new token there before the old one expires.
    """
    if environment.get(VARIABLE):
        return environment[VARIABLE]
    path = environment.get(FILE_VARIABLE)
    return token_file(path) if path else None


def token_file(path: str | Path) -> Callable[[], str]:
    """Return what reads the token in a file."""

    def read() -> str:
        try:
            return Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as err:
            raise InvalidSettingError(FILE_VARIABLE, f"no token can be read there: {err}") from err

    return read


def bearer(token: Token) -> str:
    """Make the header `Authorization`. Raises InvalidSettingError, which does not show it, if it is none."""
    found = token if isinstance(token, str) else token()
    if not _BEARER.fullmatch(found):
        raise InvalidSettingError("token", f"what was given, of {len(found)} characters, is no token")
    return f"Bearer {found}"


def check_may_be_sent(url: str) -> None:
    """Raise InvalidSettingError for a URL where others can read along: plain http, but to this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise InvalidSettingError("resolver URL", f"{url!r} is plain http, by which no token is sent: use https")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
