"""Who calls a local API."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from coldstream.local.authorizer import authorizer
from coldstream.local.http_api import Request, http_event


def token(claims: Any) -> str:
    return f"e30.{urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


def test_a_token_is_taken_for_what_it_says_as_api_gateway_writes_it() -> None:
    found = authorizer(f"Bearer {token({'sub': 'a', 'scp': ['x', 'y'], 'exp': 5, 'ok': True})}")
    assert found == {"jwt": {"claims": {"sub": "a", "scp": "[x y]", "exp": "5", "ok": "true"}, "scopes": None}}


def test_a_signature_is_that_of_a_user_by_its_key() -> None:
    found = authorizer("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20251121/eu-west-1/execute-api/aws4_request, Signed")
    assert found is not None
    assert found["iam"]["userArn"] == "arn:aws:iam::000000000000:user/AKIDEXAMPLE"


@pytest.mark.parametrize(
    "header", ["", "Basic eDp5", "Bearer", "Bearer x", "Bearer a.b.c", "Bearer a.!.c", f"Bearer {token([1])}"]
)
def test_what_says_nothing_is_nobody(header: str) -> None:
    assert authorizer(header) is None
    assert "authorizer" not in _event(header)["requestContext"]


def test_the_event_says_who_calls() -> None:
    assert _event(f"Bearer {token({'sub': 'a'})}")["requestContext"]["authorizer"]["jwt"]["claims"] == {"sub": "a"}


def _event(header: str) -> dict[str, Any]:
    return http_event(Request("GET", "/streams", (("Authorization", header),), b"", "127.0.0.1"))
