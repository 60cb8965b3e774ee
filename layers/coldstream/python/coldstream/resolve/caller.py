"""Who calls the resolver, as API Gateway says it (payload format 2.0): a principal of IAM, or the bearer of a token.

An authorizer has proven it before the function is called. Where there is none, as behind the API of `coldstream up`,
nobody is known. The claims of a token are text here: API Gateway writes a list as `[one two]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Authentication(StrEnum):
    """By what a caller is known."""

    IAM = "iam"
    TOKEN = "token"  # noqa: S105  # the word, not one
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: an ARN, or the subject of a token, its issuer, and its claims."""

    authentication: Authentication
    principal: str | None = None
    issuer: str | None = None
    claims: Mapping[str, str] | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Caller:
        """Read who made a request."""
        authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
        if "jwt" in authorizer:
            told = (authorizer["jwt"] or {}).get("claims") or {}
            claims = {name: claim for name, claim in told.items() if isinstance(claim, str)}
            return cls(Authentication.TOKEN, claims.get("sub"), claims.get("iss"), claims)
        if "iam" in authorizer:
            return cls(Authentication.IAM, (authorizer["iam"] or {}).get("userArn"))
        return cls(Authentication.NONE)

    def words(self, claim: str) -> list[str]:
        """Return the words of a claim: a list's, or those between spaces."""
        text = (self.claims or {}).get(claim, "")
        if text.startswith("[") and text.endswith("]"):
            text = text[1:-1]
        return text.split()
