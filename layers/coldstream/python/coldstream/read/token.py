"""Tokens (JWT) for the resolver's second API: where a client finds them, and to which URLs it sends them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from coldstream.errors import InvalidSettingError

Token = str | Callable[[], str]
"""A token, or a function that returns one that is valid now and is called for each request."""

VARIABLE = "COLDSTREAM_TOKEN"
FILE_VARIABLE = "COLDSTREAM_TOKEN_FILE"

_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750's b64token."""


def token_from_environment(environment: Mapping[str, str] = os.environ) -> Token | None:
    """Return the token in COLDSTREAM_TOKEN, or in the file that COLDSTREAM_TOKEN_FILE names; None without either.

    The file is read for each request, as something may put a new token there before the old one expires.
    """
    if environment.get(VARIABLE):
        return environment[VARIABLE]
    path = environment.get(FILE_VARIABLE)
    return token_file(path) if path else None


def token_file(path: str | Path) -> Callable[[], str]:
    """Return a function that reads the token in a file."""

    def read() -> str:
        try:
            return Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as err:
            raise InvalidSettingError(FILE_VARIABLE, f"no token can be read there: {err}") from err

    return read


def bearer(token: Token) -> str:
    """Return the header `Authorization`. Raises InvalidSettingError, which does not show it, if it is no token."""
    text = token if isinstance(token, str) else token()
    if not _BEARER.fullmatch(text):
        raise InvalidSettingError("token", f"the given text of {len(text)} characters is no token")
    return f"Bearer {text}"


def check_may_be_sent(url: str) -> None:
    """Raise InvalidSettingError for a URL on whose way others can read: plain http to another machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise InvalidSettingError("resolver URL", f"{url!r} is plain http, and tokens are sent only by https")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
