"""Who calls a local API: what API Gateway's authorizers would say, believed and not verified.

It is for trying permissions on one machine, which nobody else can reach. A bearer's token (JWT) is taken for what it
says; a signature for that of the user `arn:aws:iam::000000000000:user/{access key id}`.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode
from typing import Any

_TOKEN = re.compile(r"[Bb]earer [^. ]+\.(?P<claims>[^. ]+)\.[^. ]*")
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/, ]+)/")


def authorizer(authorization: str) -> dict[str, Any] | None:
    """Read the header `Authorization` as an authorizer would tell it to a function; None where it says nobody."""
    signed = _SIGNED.match(authorization)
    if signed is not None:
        arn = f"arn:aws:iam::000000000000:user/{signed['key']}"
        return {"iam": {"accessKey": signed["key"], "accountId": "000000000000", "userArn": arn}}
    token = _TOKEN.fullmatch(authorization)
    if token is None:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(token["claims"] + "=" * (-len(token["claims"]) % 4)))
    except (ValueError, binascii.Error):
        return None
    if not isinstance(claims, dict):
        return None
    return {"jwt": {"claims": {name: _text(claim) for name, claim in claims.items()}, "scopes": None}}


def _text(claim: Any) -> str:
    """Write a claim as API Gateway does: a list as `[one two]`."""
    if isinstance(claim, list):
        return f"[{' '.join(map(_text, claim))}]"
    return claim if isinstance(claim, str) else json.dumps(claim)
