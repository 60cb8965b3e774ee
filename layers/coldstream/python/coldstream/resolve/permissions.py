"""Which streams a caller of the resolver may read.

A token's scopes say what its bearer may read. IAM policies cannot see a stream's name, so what an IAM principal may
read is in the table's partition `#access`. An unknown caller, and one without scopes or grants, may read nothing. Each
of the two checks can be turned off: then every caller that the API admits may read everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldstream.errors import NotPermittedError
from coldstream.manifest.access import SCOPE_CLAIM, Grant, names_of_principal, patterns_in
from coldstream.resolve.caller import Authentication, Caller

if TYPE_CHECKING:
    from coldstream.store.ports import ManifestReads

GRANTS_KEPT_S = 10.0
"""How long a new or revoked grant may go unnoticed."""

MayRead = Callable[[str, str], bool]
"""Takes a vhost and a stream's name, and tells whether that stream may be read."""


@dataclass(slots=True)
class Permissions:
    """Decides by a token's scopes, in the claim `scope_claim`, and by the grants of a table, which it caches.

    None in place of either turns that check off.
    """

    table: ManifestReads | None = None
    scope_claim: str | None = SCOPE_CLAIM
    clock: Callable[[], float] = time.monotonic
    _cached: tuple[tuple[Grant, ...], float] | None = field(default=None, init=False, repr=False)

    def of(self, caller: Caller) -> MayRead | None:
        """Return a test of what a caller may read, None if that is everything.

        Cost: one Query for an IAM principal, unless the grants were read lately.
        """
        if caller.authentication is Authentication.TOKEN:
            if self.scope_claim is None:
                return None
            patterns = patterns_in(caller.words(self.scope_claim))
            return lambda vhost, name: any(pattern.matches(vhost, name) for pattern in patterns)
        if self.table is None:
            return None
        principals = () if caller.principal is None else names_of_principal(caller.principal)
        grants = [grant for grant in self._grants(self.table) if grant.is_for(principals)]
        return lambda vhost, name: any(grant.matches(vhost, name) for grant in grants)

    def check(self, caller: Caller, vhost: str, name: str) -> None:
        """Raise NotPermittedError unless a caller may read a stream, whether or not that stream exists."""
        may_read = self.of(caller)
        if may_read is not None and not may_read(vhost, name):
            raise NotPermittedError(f"reading stream {name!r} in vhost {vhost!r} is not permitted")

    def _grants(self, table: ManifestReads) -> tuple[Grant, ...]:
        # Taken before the Query: a slow answer must not keep a revoked grant for longer than GRANTS_KEPT_S.
        now = self.clock()
        if self._cached is None or now >= self._cached[1]:
            self._cached = (table.grants(), now + GRANTS_KEPT_S)
        return self._cached[0]
