"""Logins: passwords are checked in few threads, successes are remembered for a short while, failures are counted.

To check a password costs time, on purpose, so it is the first thing that an attacker can make a server spend. Few
checks are under way at a time, a bounded number waits, and an address that fails too often is refused unchecked.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

CACHE_S = 30.0
MAX_WAITING = 256
_CHECKS = 2
_MAX_REMEMBERED = 4096


class PasswordCheck(Protocol):
    """Knows users and their passwords."""

    def check(self, user: str, password: str) -> bool:
        """Tell whether a user has this password. Blocks."""
        ...


class NoPasswords:
    """Lets everybody in, for a gateway that only its own machine reaches, and for tests."""

    def check(self, user: str, password: str) -> bool:  # noqa: ARG002  whoever it is
        """Return True."""
        return True


@dataclass(slots=True)
class _Failures:
    count: int = 0
    since: float = field(default=0.0)


class Logins:
    """Checks logins, for one event loop."""

    def __init__(
        self,
        passwords: PasswordCheck,
        *,
        cache_s: float = CACHE_S,
        max_failures: int = 10,
        failures_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_failures` of one address within `failures_s` have it refused until these are over."""
        self._passwords = passwords
        self._cache_s = cache_s
        self._max_failures = max_failures
        self._failures_s = failures_s
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._executor = ThreadPoolExecutor(_CHECKS, thread_name_prefix="coldstream-logins")
        self._waiting = 0

    async def is_right(self, address: str, user: str, password: str) -> bool:
        """Tell whether a user from an address has this password; False also if too many were wrong, or are waiting."""
        # A password itself is not kept in memory.
        mark = hmac.digest(self._secret, f"{len(user)}:{user}{password}".encode(errors="surrogatepass"), "sha256")
        if self._right.get(mark, 0.0) > self._clock():
            return True  # whoever else is behind this address
        if self._is_blocked(address) or self._waiting >= MAX_WAITING:
            return False
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._executor, self._passwords.check, user, password)
        finally:
            self._waiting -= 1
        if is_right:
            self._right[mark] = self._clock() + self._cache_s
            self._right.move_to_end(mark)
            while len(self._right) > _MAX_REMEMBERED:
                self._right.popitem(last=False)
        else:
            self._note_failure(address)
        return is_right

    def close(self) -> None:
        """End the threads, once what they check is checked."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _is_blocked(self, address: str) -> bool:
        known = self._failures.get(address)
        if known is None:
            return False
        if self._clock() - known.since > self._failures_s:
            del self._failures[address]
            return False
        return known.count >= self._max_failures

    def _note_failure(self, address: str) -> None:
        known = self._failures.setdefault(address, _Failures(since=self._clock()))
        known.count += 1
        while len(self._failures) > _MAX_REMEMBERED:
            self._failures.popitem(last=False)
