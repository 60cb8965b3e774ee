"""Deletions that are signed with the time of a claim."""

from __future__ import annotations

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from coldstream.store.objects import S3Objects
from coldstream.units import TimestampMs

CLAIMED_AT = TimestampMs(1_763_700_000_000)
DATE = "20251121T044000Z"


def objects_that_note(signed: list[str], monkeypatch: pytest.MonkeyPatch) -> S3Objects:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    objects = S3Objects("archive")

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        date = request.headers["X-Amz-Date"]
        signed.append(date.decode() if isinstance(date, bytes) else date)
        body = b"<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>"
        found = AWSResponse(request.url, 200, {"x-amz-request-id": "1"}, None)
        found._content = body
        return found

    objects._client.meta.events.register_first("before-send.s3", answer)
    return objects


def test_a_deletion_is_signed_with_the_time_of_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[str] = []
    objects = objects_that_note(signed, monkeypatch)
    assert objects.delete_many(["a"], signed_at=CLAIMED_AT).deleted == ("a",)
    objects.delete("a", signed_at=CLAIMED_AT)
    assert signed == [DATE, DATE]


def test_temporary_credentials_and_the_day_of_the_claim_are_part_of_the_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signed: list[str] = []
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a token")
    objects = objects_that_note(signed, monkeypatch)
    headers: list[str] = []

    def note(request: AWSPreparedRequest, **_: object) -> None:
        headers.extend(str(request.headers[name]) for name in ("Authorization", "X-Amz-Security-Token"))

    objects._client.meta.events.register_first("before-send.s3", note)
    objects.delete_many(["a"], signed_at=CLAIMED_AT)
    authorization, token = headers
    assert "a token" in token
    assert "/20251121/eu-central-1/s3/aws4_request" in authorization
    assert "x-amz-security-token" in authorization


def test_any_other_is_signed_with_the_time_of_its_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[str] = []
    objects = objects_that_note(signed, monkeypatch)
    objects.delete_many(["a"], signed_at=CLAIMED_AT)
    objects.delete_many(["a"])
    objects.delete("a")
    assert DATE not in signed[1:]
    assert len(signed) == 3
