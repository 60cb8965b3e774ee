"""The caller of the resolver, as API Gateway reports it (payload format 2.0): an IAM principal, or a token's bearer.

An authorizer authenticates the caller before the function is called. Without one, as behind the API of `coldstream up`,
the caller is unknown. A token's claims are text here: API Gateway writes a list as `[one two]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Authentication(StrEnum):
    """How a caller was authenticated."""

    IAM = "iam"
    TOKEN = "token"  # noqa: S105  # the word, not a secret
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: the ARN of an IAM principal, or the subject, issuer and claims of a token."""

    authentication: Authentication
    principal: str | None = None
    issuer: str | None = None
    claims: Mapping[str, str] | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Caller:
        """Read the caller from a request's event."""
        authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
        if "jwt" in authorizer:
            given = (authorizer["jwt"] or {}).get("claims") or {}
            claims = {name: claim for name, claim in given.items() if isinstance(claim, str)}
            return cls(Authentication.TOKEN, claims.get("sub"), claims.get("iss"), claims)
        if "iam" in authorizer:
            return cls(Authentication.IAM, (authorizer["iam"] or {}).get("userArn"))
        return cls(Authentication.NONE)

    def words(self, claim: str) -> list[str]:
        """Return the words of a claim, which is a list or text with spaces."""
        text = (self.claims or {}).get(claim, "")
        if text.startswith("[") and text.endswith("]"):
            text = text[1:-1]
        return text.split()
