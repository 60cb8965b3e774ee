"""Who may see and change jobs.

A job reaches every stream of the archive, whichever of them its creator may read: it can copy messages to a broker or
a bucket, erase and remove them. So jobs have rights of their own, for the archive as a whole:

    coldstream.jobs:read     list and show jobs, their logs, and previews
    coldstream.jobs:write    all that, and create, edit, pause, resume, cancel and delete them

A token has them as scopes. What an IAM principal may do, its policies say by path and method (`execute-api:Invoke`):
whoever comes as one has passed them. A caller that no authorizer has named has no rights, except on the loopback.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import NotPermittedError
from coldstream.manifest.access import SCOPE_CLAIM
from coldstream.resolve.caller import Authentication, Caller

LOCAL = "COLDSTREAM_LOCAL"
"""`coldstream up` sets it to `true` for its functions, which nobody but this machine reaches."""


class JobRight(StrEnum):
    """A right on all jobs: the scope that a token has it by."""

    READ = "coldstream.jobs:read"
    WRITE = "coldstream.jobs:write"


@dataclass(frozen=True, slots=True)
class JobRights:
    """Decides by a token's scopes, in the claim `scope_claim`; None lets every token that the API admits do all.

    `admits_unknown`: callers that no authorizer has named may do all.
    """

    scope_claim: str | None = SCOPE_CLAIM
    admits_unknown: bool = False

    def check(self, caller: Caller, right: JobRight) -> None:
        """Raise NotPermittedError unless a caller has a right."""
        match caller.authentication:
            case Authentication.TOKEN:
                permitted = self.scope_claim is None or self._has_scope(caller, self.scope_claim, right)
            case Authentication.IAM:
                permitted = caller.principal is not None
            case Authentication.NONE:
                permitted = self.admits_unknown
        if not permitted:
            what = "reading jobs" if right is JobRight.READ else "changing jobs"
            raise NotPermittedError(f"{what} is not permitted: a token needs the scope {right.value}")

    def check_known(self, caller: Caller) -> None:
        """Raise NotPermittedError for a caller that no authorizer has named, unless those may do all."""
        if caller.authentication is Authentication.NONE and not self.admits_unknown:
            raise NotPermittedError("nobody has said who calls")

    @staticmethod
    def _has_scope(caller: Caller, claim: str, right: JobRight) -> bool:
        scopes = caller.words(claim)
        return right.value in scopes or JobRight.WRITE.value in scopes


def admits_unknown() -> bool:
    """Tell whether this process serves its own machine alone."""
    return os.environ.get(LOCAL) == "true"
