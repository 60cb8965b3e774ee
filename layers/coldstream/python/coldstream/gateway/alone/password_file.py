"""Users in a file, each with a hash of the password: `user:hash`, a line each.

    hash      scrypt$N$r$p$salt$key; salt and key in base64

Empty lines and those that begin with # are nothing. A name may hold any character but a colon and a line break, and
stands once. The file is read again when it has changed; one that is malformed then is logged, and the users before
stay.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coldstream.errors import InvalidSettingError
from coldstream.gateway.alone.watched_file import WatchedFile

_KIND = "scrypt"
_N, _R, _P = 1 << 14, 8, 1
_KEY_BYTES, _SALT_BYTES = 32, 16
_MAX_MEMORY_BYTES = 256 << 20
_FIELDS = 6


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What is kept of a password: the parameters of scrypt, a salt, and the key that comes out."""

    n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @classmethod
    def of(cls, password: str) -> PasswordHash:
        """Hash a password, with a salt of its own. Cost: 16 MiB and some 50 ms of a core."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(_N, _R, _P, salt, _derive(password, salt, n=_N, r=_R, p=_P))

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """Read what `str` gives. Raises ValueError, which does not say what is in it."""
        fields = text.split("$")
        if len(fields) != _FIELDS or fields[0] != _KIND:
            raise ValueError("not scrypt$N$r$p$salt$key")
        try:
            n, r, p = map(int, fields[1:4])
            salt, key = (base64.b64decode(one, validate=True) for one in fields[4:])
        except (ValueError, binascii.Error):
            raise ValueError("not scrypt$N$r$p$salt$key") from None
        if n <= 1 or n & (n - 1) or r < 1 or p < 1 or 128 * n * r * p > _MAX_MEMORY_BYTES // 2:
            raise ValueError("parameters of scrypt that are not allowed here")
        if len(salt) < _SALT_BYTES // 2 or len(key) < _KEY_BYTES:
            raise ValueError("a salt or a key that is too short")
        if n >= 1 << (16 * r):
            raise ValueError("parameters that scrypt does not have")
        return cls(n, r, p, salt, key)

    def is_of(self, password: str) -> bool:
        """Tell whether it is the hash of a password, in a time that does not depend on how much of it is right."""
        found = _derive(password, self.salt, n=self.n, r=self.r, p=self.p, key_bytes=len(self.key))
        return hmac.compare_digest(found, self.key)

    def __str__(self) -> str:
        salt, key = (base64.b64encode(one).decode() for one in (self.salt, self.key))
        return f"{_KIND}${self.n}${self.r}${self.p}${salt}${key}"


def hash_password(password: str) -> str:
    """Return the hash of a password as it stands in a file of users."""
    return str(PasswordHash.of(password))


class PasswordFile(WatchedFile[Mapping[str, PasswordHash]]):
    """The users of a file. Implements `PasswordCheck`."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises InvalidSettingError."""
        super().__init__(path, "users_file", _parse)
        # An unknown user costs as much time as a known one.
        self._nobody = PasswordHash.of(secrets.token_hex())

    def check(self, user: str, password: str) -> bool:
        """Tell whether a user has this password."""
        self.look()
        known = self.current.get(user)
        is_right = (self._nobody if known is None else known).is_of(password)
        return is_right and known is not None

    def knows(self, user: str) -> bool:
        """Tell whether the file has a user."""
        return user in self.current


def _parse(text: str) -> dict[str, PasswordHash]:
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, hashed = line.rpartition(":")
        if not colon or not user:
            raise InvalidSettingError("users_file", f"line {number} is not USER:HASH")
        if user in users:
            raise InvalidSettingError("users_file", f"line {number}: the user is there before")
        try:
            users[user] = PasswordHash.parse(hashed.strip())
        except ValueError as err:
            raise InvalidSettingError("users_file", f"line {number}: {err}") from None
    if not users:
        raise InvalidSettingError("users_file", "has no user")
    return users


def _derive(password: str, salt: bytes, *, n: int, r: int, p: int, key_bytes: int = _KEY_BYTES) -> bytes:
    secret = password.encode(errors="surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, dklen=key_bytes, maxmem=_MAX_MEMORY_BYTES)
