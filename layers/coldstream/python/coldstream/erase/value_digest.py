"""The digest of a value by which messages are selected: SHA-256 of a random salt and the value as UTF-8.

It tells whether another value is the same, and does not tell the value. It does not stop whoever can list all values
that are possible, such as all phone numbers, and try each.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class ValueDigest:
    """Salt and digest, both in hex."""

    salt: str
    sha256: str

    @classmethod
    def of(cls, value: str) -> Self:
        """Digest a value, with a salt of its own."""
        salt = secrets.token_hex(SALT_BYTES)
        return cls(salt, _hashed(salt, value))

    def matches(self, value: str) -> bool:
        """Tell whether this is the digest of a value. Cost: about 1 us."""
        return _hashed(self.salt, value) == self.sha256

    def to_json(self) -> dict[str, str]:
        """Return the parts by name."""
        return {"salt": self.salt, "sha256": self.sha256}


def _hashed(salt: str, value: str) -> str:
    # A str from a message may have been decoded with lone surrogates; they must not end the run.
    return sha256(bytes.fromhex(salt) + value.encode(errors="surrogatepass")).hexdigest()
