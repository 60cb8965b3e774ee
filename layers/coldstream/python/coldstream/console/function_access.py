"""Who may use the console on Lambda: tokens and the key of sessions, from a secret; never nobody's, but on a laptop.

The secret is JSON: `tokens`, the lines of a file of tokens, and `key`, which nobody but the function knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from coldstream.errors import InvalidSettingError
from coldstream.web.access_tokens import AccessTokens

SECRET = "COLDSTREAM_CONSOLE_SECRET"  # noqa: S105  the name of a variable
LOCAL = "COLDSTREAM_LOCAL"
LEAST_KEY = 16


@dataclass(frozen=True, slots=True)
class FunctionAccess:
    """The tokens, None if this machine alone reaches the function; and the key that signs sessions."""

    tokens: AccessTokens | None
    key: bytes | None

    @classmethod
    def read(cls, environment: Mapping[str, str], read_secret: Callable[[str], str]) -> FunctionAccess:
        """Read the secret that the environment names. Raises InvalidSettingError, which shows nothing of it."""
        is_local = environment.get(LOCAL) == "true"
        name = environment.get(SECRET, "")
        if not name:
            if is_local:
                return cls(None, None)
            raise InvalidSettingError(SECRET, "is missing: it names the secret with the console's tokens")
        try:
            content = json.loads(read_secret(name))
            lines, key = str(content["tokens"]), str(content["key"])
        except (ValueError, TypeError, KeyError):
            raise InvalidSettingError(SECRET, 'is no JSON of "tokens" and "key"') from None
        if len(key) < LEAST_KEY:
            raise InvalidSettingError(SECRET, f'has a "key" of fewer than {LEAST_KEY} characters')
        if not lines.strip():
            if is_local:
                return cls(None, None)
            raise InvalidSettingError(SECRET, 'has no token: write lines SHA256 NAME r|w|rw PATTERN into "tokens"')
        return cls(AccessTokens.parse(lines.splitlines()), sha256(key.encode()).digest())
