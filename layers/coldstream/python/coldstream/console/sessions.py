"""Sessions: what a browser keeps after a login, in place of the token.

    v1.{when it ends, seconds}.{sha256 of the token's digest, 16 bytes}.{HMAC-SHA256 of all before}

The value is signed and holds all that a session is, so several processes, or instances of a function, take each
other's if they have the same key. It is no token: nobody can tell the token from it. A session ends with its time,
with its token's line in the file, and with the key. The HMAC's key is made of the server's key and the token's digest.
"""

from __future__ import annotations

import hmac
import re
import secrets
from hashlib import sha256

from coldstream.web.access_tokens import AccessTokens, TokenHolder

KEY_BYTES = 32
_VALUE = re.compile(r"(?P<signed>v1\.(?P<ends>[0-9]{1,12})\.(?P<mark>[0-9a-f]{32}))\.(?P<mac>[0-9a-f]{64})", re.ASCII)


class Sessions:
    """Makes and reads the values of session cookies, for the tokens that are known and a key that nobody else has."""

    def __init__(self, tokens: AccessTokens, key: bytes | None = None, session_s: int = 12 * 3600) -> None:
        self._tokens = tokens
        self._key = key or secrets.token_bytes(KEY_BYTES)
        self._digests = {_mark(digest): digest for digest in {grant.digest for grant in tokens.grants}}
        self.session_s = session_s

    def begin(self, token: str, now_s: float) -> str | None:
        """Return the value for whoever has a token; None if it is not known."""
        if self._tokens.holder_of_token(token) is None:
            return None
        digest = sha256(token.encode()).hexdigest()
        signed = f"v1.{int(now_s) + self.session_s}.{_mark(digest)}"
        return f"{signed}.{self._mac(signed, digest)}"

    def holder_of(self, value: str | None, now_s: float) -> TokenHolder | None:
        """Return who has a session; None if the value is none of ours, or over."""
        found = _VALUE.fullmatch(value or "")
        digest = self._digests.get(found["mark"]) if found is not None else None
        if found is None or digest is None:
            return None
        if not hmac.compare_digest(self._mac(found["signed"], digest), found["mac"]) or int(found["ends"]) <= now_s:
            return None
        return self._tokens.holder_of_digest(digest)

    def _mac(self, signed: str, digest: str) -> str:
        key = hmac.digest(self._key, f"coldstream console session {digest}".encode(), "sha256")
        return hmac.digest(key, signed.encode(), "sha256").hex()


def _mark(digest: str) -> str:
    return sha256(f"coldstream console {digest}".encode()).hexdigest()[:32]
