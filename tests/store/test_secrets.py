"""A secret is what AWS says that it is, and nobody else."""

from __future__ import annotations

import json

import boto3
import pytest

from coldstream.errors import UnavailableError
from coldstream.store.secrets import read_secret
from tests.store.wire import Wire, answer, foreign_answer


def test_the_page_of_a_proxy_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    client = boto3.client(
        "secretsmanager", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    page = b"<html>Please sign in.</html>"
    with Wire(client, foreign_answer(200, page), answer(200, json.dumps({"SecretString": "a secret"}).encode())):
        assert read_secret("a-name") == "a secret"
    with Wire(client, *(foreign_answer(200, page) for _ in range(5))), pytest.raises(UnavailableError, match="a-name"):
        read_secret("a-name")
