"""Our signatures against botocore's, of the same requests at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from coldstream.store.environment import AwsEnvironment
from coldstream.store.sigv4 import SigV4Signer
from coldstream.units import TimestampMs

HOST = "127.0.0.1:4566"
REQUESTS = 300
TEXT = "aZ09-_.~ /+=&%?#!*'()@:;,$[]|\"\\<>`^{}äß€\u00a0日本語🐰"
KEYS = [
    "data/00000000000000000042.fragment",
    "a b+c/%2F/ä/日本語🐰/~tilde",
    "//double//slashes/./and/../dots",
    "trailing/ ",
]


@pytest.fixture(params=[None, "token/+=="], ids=["a user's", "a role's"])
def aws(request: pytest.FixtureRequest) -> AwsEnvironment:
    return AwsEnvironment("eu-central-1", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY", request.param)


@pytest.fixture
def set_botocore_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[TimestampMs], None]:
    def at(now: TimestampMs) -> None:
        monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime.fromtimestamp(now // 1000, UTC))

    return at


def credentials(aws: AwsEnvironment) -> Credentials:
    return Credentials(aws.access_key_id, aws.secret_access_key, aws.session_token)


def random_requests(dice: random.Random) -> Iterator[tuple[str, dict[str, str], dict[str, str], TimestampMs]]:
    """Yield keys, queries, headers and times."""

    def text(most: int, of: str = TEXT) -> str:
        return "".join(dice.choices(of, k=dice.randint(1, most)))

    for _ in range(REQUESTS):
        query = {text(6): text(20) for _ in range(dice.randrange(4))}
        headers = {f"X-{text(8, 'abcXYZ09-')}": text(20, 'abc  ,;="äß') for _ in range(dice.randrange(4))}
        yield text(40), query, headers, TimestampMs(dice.randrange(1_600_000_000_000, 4_000_000_000_000))
    for key in KEYS:
        yield key, {}, {"Range": "bytes=0-99"}, TimestampMs(1_763_700_000_999)


def test_signed_headers_are_those_of_botocore(
    aws: AwsEnvironment, set_botocore_time: Callable[[TimestampMs], None]
) -> None:
    signer = SigV4Signer(aws, "s3")
    dice = random.Random(1)
    for key, query, given, at in random_requests(dice):
        body = dice.randbytes(dice.randrange(100))
        path = f"/bucket/{quote(key)}"
        set_botocore_time(at)
        request = AWSRequest(
            method="PUT", url=f"http://{HOST}{path}", data=body, params=query, headers={**given, "Host": HOST}
        )
        S3SigV4Auth(credentials(aws), "s3", aws.region).add_auth(request)
        sent = {"Host": HOST, **given, "X-Amz-Content-SHA256": str(request.headers["X-Amz-Content-SHA256"])}
        found = signer.headers("PUT", path, query, sent, body=body, at=at)
        assert found["Authorization"] == request.headers["Authorization"]
        assert found["X-Amz-Date"] == request.headers["X-Amz-Date"]
        assert found.get("X-Amz-Security-Token") == request.headers.get("X-Amz-Security-Token")


def test_a_request_of_another_service_is_signed_as_botocore_signs_it(
    aws: AwsEnvironment, set_botocore_time: Callable[[TimestampMs], None]
) -> None:
    at = TimestampMs(1_763_700_000_000)
    set_botocore_time(at)
    headers = {"Host": HOST, "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.Query"}
    request = AWSRequest(method="POST", url=f"http://{HOST}/", data=b"{}", headers=headers)
    SigV4Auth(credentials(aws), "dynamodb", aws.region).add_auth(request)
    found = SigV4Signer(aws, "dynamodb").headers("POST", "/", {}, headers, body=b"{}", at=at)
    assert found["Authorization"] == request.headers["Authorization"]


def test_presigned_urls_are_those_of_botocore(
    aws: AwsEnvironment, set_botocore_time: Callable[[TimestampMs], None]
) -> None:
    signer = SigV4Signer(aws, "s3")
    for key, query, given, at in random_requests(random.Random(2)):
        path = f"/bucket/{quote(key)}"
        set_botocore_time(at)
        request = AWSRequest(
            method="GET", url=f"http://{HOST}{path}?{urlencode(query, quote_via=quote)}", headers=given
        )
        S3SigV4QueryAuth(credentials(aws), "s3", aws.region, expires=900).add_auth(request)
        found = signer.presigned_query("GET", path, query, {**given, "Host": HOST}, expires_s=900, at=at)
        expected = urlsplit(request.url).query
        assert sorted(parse_qsl(found, keep_blank_values=True)) == sorted(parse_qsl(expected, keep_blank_values=True))


def test_a_signature_after_midnight_has_the_key_of_the_new_day(
    aws: AwsEnvironment, set_botocore_time: Callable[[TimestampMs], None]
) -> None:
    signer = SigV4Signer(aws, "dynamodb")
    midnight = 1_763_683_200_000
    for at in map(TimestampMs, (midnight - 1, midnight, midnight - 1)):
        set_botocore_time(at)
        request = AWSRequest(method="POST", url=f"http://{HOST}/", data=b"{}", headers={"Host": HOST})
        SigV4Auth(credentials(aws), "dynamodb", aws.region).add_auth(request)
        found = signer.headers("POST", "/", {}, {"Host": HOST}, body=b"{}", at=at)
        assert found["Authorization"] == request.headers["Authorization"]
