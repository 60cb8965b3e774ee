"""What of AWS is read from variables, and what is left to the SDK."""

from __future__ import annotations

import os
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from coldstream.store.clock import HEARD
from coldstream.store.environment import AwsEnvironment
from coldstream.store.fast_reads import FastObjects
from coldstream.store.objects import S3Objects
from coldstream.units import ByteRange

OF_LAMBDA = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token/+=",
    "AWS_REGION": "eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EXECUTION_ENV": "AWS_Lambda_python3.11",
    "AWS_LAMBDA_FUNCTION_NAME": "resolver",
    "AWS_XRAY_DAEMON_ADDRESS": "169.254.100.1:2000",
    "AWS_CONFIG_FILE": os.devnull,
    "PATH": "/usr/bin",
}


def test_the_environment_of_lambda_is_enough() -> None:
    aws = AwsEnvironment.from_variables(OF_LAMBDA)
    assert aws == AwsEnvironment("eu-central-1", "id", "secret", "token/+=")
    assert aws.dynamodb_url == "https://dynamodb.eu-central-1.amazonaws.com"
    assert "secret" not in repr(aws)
    assert "token" not in repr(aws)


def test_an_endpoint_of_a_service_goes_before_that_of_all() -> None:
    given = {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566/", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000"}
    aws = AwsEnvironment.from_variables(OF_LAMBDA | given)
    assert aws is not None
    assert aws.dynamodb_url == "http://127.0.0.1:8000"
    assert aws.bucket_url("archive") == "http://127.0.0.1:4566/archive"


@pytest.mark.parametrize(
    "more",
    [
        {"AWS_PROFILE": "admin"},
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_CA_BUNDLE": "/etc/bundle.pem"},
        {"AWS_CA_BUNDLE": "/etc/bundle.pem", "AWS_ENDPOINT_URL": "https://127.0.0.1:4566"},
        {"AWS_CA_BUNDLE": "/etc/bundle.pem", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000"},
        {"REQUESTS_CA_BUNDLE": "/etc/bundle.pem", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:4566"},
        {"HTTPS_PROXY": "http://proxy:3128", "AWS_ENDPOINT_URL": "http://127.0.0.1:4566"},
        {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        {"AWS_A_SETTING_OF_NEXT_YEAR": "1"},
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_DEFAULT_REGION": ""},
        {"AWS_DEFAULT_REGION": "cn-north-1"},
        {"AWS_DEFAULT_REGION": "us-iso-east-1"},
        {"AWS_DEFAULT_REGION": "eusc-de-east-1"},
        {"AWS_ENDPOINT_URL": ""},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1/prefix"},
        {"AWS_ENDPOINT_URL": "http://[::1]:4566"},
        {"AWS_ENDPOINT_URL": "http://me:secret@127.0.0.1"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:80"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:port"},
        {"AWS_ENDPOINT_URL_DYNAMODB": "ftp://127.0.0.1"},
        {"HTTPS_PROXY": "http://proxy:3128"},
        {"http_proxy": "http://proxy:3128"},
        {"REQUESTS_CA_BUNDLE": "/etc/bundle.pem"},
    ],
    ids=str,
)
def test_what_may_say_more_is_left_to_the_sdk(more: dict[str, str]) -> None:
    assert AwsEnvironment.from_variables(OF_LAMBDA | more) is None


@pytest.mark.parametrize("bundle", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "requests_ca_bundle"])
def test_whom_to_trust_says_nothing_of_endpoints_without_certificates(bundle: str) -> None:
    emulator = OF_LAMBDA | {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}
    found = AwsEnvironment.from_variables(emulator | {bundle: "/etc/bundle.pem"})
    assert found is not None
    assert found == AwsEnvironment.from_variables(emulator)


def test_a_configuration_file_is_left_to_the_sdk(tmp_path: Path) -> None:
    path = tmp_path / "config"
    given = OF_LAMBDA | {"AWS_CONFIG_FILE": str(path)}
    assert AwsEnvironment.from_variables(given) is not None
    path.write_text("[default]\nendpoint_url = http://127.0.0.1\n")
    assert AwsEnvironment.from_variables(given) is None


@pytest.mark.parametrize("bucket", ["a.b", "xn--archive", "arn:aws:s3:eu-central-1:1:accesspoint/a", "A", "ab"])
def test_a_bucket_of_no_plain_name_is_left_to_the_sdk(bucket: str) -> None:
    aws = AwsEnvironment.from_variables(OF_LAMBDA)
    assert aws is not None
    assert aws.bucket_url(bucket) is None


def test_an_s3_endpoint_of_aws_is_left_to_the_sdk() -> None:
    given = {"AWS_ENDPOINT_URL_S3": "https://bucket.vpce-1.s3.eu-central-1.vpce.amazonaws.com"}
    aws = AwsEnvironment.from_variables(OF_LAMBDA | given)
    assert aws is not None
    assert aws.bucket_url("archive") is None


@pytest.mark.parametrize("region", ["eu-central-1", "us-east-1", "us-gov-west-1", "ap-southeast-7"])
@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:4566"])
@pytest.mark.parametrize("token", [None, "token/+="])
def test_a_url_is_the_one_that_the_sdk_signs(
    region: str, endpoint: str | None, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = OF_LAMBDA | {"AWS_DEFAULT_REGION": region, "AWS_SESSION_TOKEN": token, "AWS_ENDPOINT_URL_S3": endpoint}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in given.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    aws = AwsEnvironment.from_variables()
    assert aws is not None
    url = aws.bucket_url("archive")
    assert url is not None
    fast, sdk = FastObjects("archive", url, aws), S3Objects("archive")
    HEARD.hear(formatdate())
    for key in ("p/8a8df1d4_x/data/0.fragment", "a//b", "../a/./b", "ü x+%/~$&='()*"):
        ours, theirs = _in_one_second(fast, sdk, key)
        # The order of the parameters is nobody's: S3 sorts them before it verifies the signature.
        assert ours.partition("?")[0] == theirs.partition("?")[0]
        assert sorted(parse_qsl(ours.partition("?")[2])) == sorted(parse_qsl(theirs.partition("?")[2]))


def _in_one_second(fast: FastObjects, sdk: S3Objects, key: str) -> tuple[str, str]:
    while True:
        before = HEARD.now()
        urls = [signer.presign_get(key, ByteRange(8, 100), expires_s=60) for signer in (fast, sdk)]
        after = HEARD.now()
        if before is not None and after is not None and before // 1000 == after // 1000:
            return urls[0], urls[1]
