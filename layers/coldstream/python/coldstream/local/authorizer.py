"""The caller of a local API, as API Gateway's authorizers would describe it. Nothing is verified.

It lets people try permissions on a machine that nobody else can reach. A bearer token (JWT) is believed; a signature
counts as that of the user `arn:aws:iam::000000000000:user/{access key id}`.
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
    """Return the `authorizer` of an event for a header `Authorization`, or None if it names nobody."""
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
    """Return a claim as API Gateway writes it: a list as `[one two]`."""
    if isinstance(claim, list):
        return f"[{' '.join(map(_text, claim))}]"
    return claim if isinstance(claim, str) else json.dumps(claim)
