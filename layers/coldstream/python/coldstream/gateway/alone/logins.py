"""Logins: passwords are checked in few threads, successes are remembered for a short while, failures are counted.

To check a password costs time, on purpose, so it is the first thing that an attacker can make a server spend. Few
checks are under way at a time, a bounded number waits, and whoever fails too often is refused unchecked. That is a user
from an address, and later the address: many clients may have one, behind a load balancer, and one that has a wrong
password must not shut the others out. Nobody is told that a password is wrong that was not checked for want of room.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from coldstream.errors import UnavailableError

CACHE_S = 30.0
MAX_WAITING = 256
USERS_OF_ADDRESS = 10
"""How many users of one address may fail as often as one may."""

_CHECKS = 2
_MAX_REMEMBERED = 4096
_NETWORK_BITS = 64


class PasswordCheck(Protocol):
    """Knows users and their passwords."""

    def check(self, user: str, password: str) -> bool:
        """Tell whether a user has this password. Blocks. Raises UnavailableError if that cannot be told now."""
        ...

    def knows(self, user: str) -> bool:
        """Return False if a user is certainly no longer there."""
        ...

    def look(self) -> None:
        """See whether the users have changed. Blocks."""
        ...


class NoPasswords:
    """Lets everybody in, for a gateway that only its own machine reaches, and for tests."""

    def check(self, user: str, password: str) -> bool:  # noqa: ARG002  whoever it is
        """Return True."""
        return True

    def knows(self, user: str) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def look(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Failures:
    count: int
    since: float


@dataclass(slots=True)
class _LoginCheck:
    """A check that waits or is under way, what its failure counts for, and how many logins wait for it."""

    task: asyncio.Task[bool]
    keys: tuple[tuple[str, ...], ...]
    waiting: int = 0


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
        """`max_failures` of one user from one address within `failures_s` have it refused until these are over."""
        self.passwords = passwords
        self._cache_s = cache_s
        self._max_failures = max_failures
        self._failures_s = failures_s
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()
        self._failures: OrderedDict[tuple[str, ...], _Failures] = OrderedDict()
        self._executor = ThreadPoolExecutor(_CHECKS, thread_name_prefix="coldstream-logins")
        self._checking: dict[bytes, _LoginCheck] = {}
        self._under_way: Counter[tuple[str, ...]] = Counter()

    async def is_right(self, address: str, user: str, password: str) -> bool:
        """Tell whether a user from an address has this password; False also if too many were wrong before.

        Raises UnavailableError if it cannot be told now, as too many logins wait, or the users cannot be asked.
        """
        if not password:
            return False  # directories that a command may ask take it for a login without a name
        # A password itself is not kept in memory.
        mark = hmac.digest(self._secret, f"{len(user)}:{user}{password}".encode(errors="surrogatepass"), "sha256")
        if self._right.get(mark, 0.0) > self._clock() and self.passwords.knows(user):
            return True  # whoever else is behind this address
        check = self._checking.get(mark)
        if check is None:
            network = _network_of(address)
            limits = {(network, user): self._max_failures, (network,): USERS_OF_ADDRESS * self._max_failures}
            if any(self._failed(key) >= most for key, most in limits.items()):
                return False
            # Those under way may all fail: together they are no more tries than one after the other.
            busy = any(self._failed(key) + self._under_way[key] >= most for key, most in limits.items())
            if busy or len(self._checking) >= MAX_WAITING:
                raise UnavailableError("too many logins wait to be checked")
            # One check for all who come with it at a time: after a restart, that is every client of a user.
            keys = tuple(limits)
            check = _LoginCheck(asyncio.create_task(self._check(mark, keys, user, password)), keys)
            self._checking[mark] = check
            self._under_way.update(keys)
        check.waiting += 1
        try:
            return await asyncio.shield(check.task)
        finally:
            check.waiting -= 1
            if not check.waiting:
                check.task.cancel()  # they have all left: others need the place
            if (check.task.done() or not check.waiting) and self._checking.get(mark) is check:
                del self._checking[mark]
                self._under_way -= Counter(check.keys)  # which forgets what is 0

    def close(self) -> None:
        """End the threads, once what they check is checked."""
        for check in self._checking.values():
            check.task.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _check(self, mark: bytes, keys: tuple[tuple[str, ...], ...], user: str, password: str) -> bool:
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(self._executor, self.passwords.check, user, password)
        if not is_right:
            for key in keys:
                self._note_failure(key)
            return False
        self._right[mark] = self._clock() + self._cache_s
        self._right.move_to_end(mark)
        while len(self._right) > _MAX_REMEMBERED:
            self._right.popitem(last=False)
        return True

    def _failed(self, key: tuple[str, ...]) -> int:
        known = self._failures.get(key)
        if known is None:
            return 0
        if self._clock() - known.since > self._failures_s:
            del self._failures[key]
            return 0
        return known.count

    def _note_failure(self, key: tuple[str, ...]) -> None:
        if not self._failed(key):
            self._failures[key] = _Failures(0, self._clock())
        self._failures[key].count += 1
        while len(self._failures) > _MAX_REMEMBERED:
            self._failures.popitem(last=False)


def _network_of(address: str) -> str:
    """Return what one client may have addresses of: of IPv6, 64 bits."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((known, _NETWORK_BITS), strict=False))
