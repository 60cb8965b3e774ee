from __future__ import annotations

import pytest

from coldstream.local.environment import aws_environment, client, process_environment

ENDPOINT = "http://127.0.0.1:4000"


def test_the_embedded_aws_gets_fake_credentials_whatever_there_is() -> None:
    inherited = {"AWS_ACCESS_KEY_ID": "real", "AWS_SECRET_ACCESS_KEY": "real", "AWS_SESSION_TOKEN": "real"}
    environment = aws_environment(inherited, ENDPOINT)
    assert "real" not in environment.values()
    assert environment["AWS_ENDPOINT_URL"] == ENDPOINT


def test_an_endpoint_of_the_callers_keeps_the_callers_credentials_and_region() -> None:
    inherited = {"AWS_ENDPOINT_URL": ENDPOINT, "AWS_ACCESS_KEY_ID": "id", "AWS_DEFAULT_REGION": "eu-north-1"}
    environment = aws_environment(inherited, ENDPOINT)
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_DEFAULT_REGION"]) == ("id", "eu-north-1")


def test_services_elsewhere_stay_there() -> None:
    environment = aws_environment({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000"}, ENDPOINT)
    assert client("dynamodb", environment).meta.endpoint_url == "http://127.0.0.1:8000"
    assert client("s3", environment).meta.endpoint_url == ENDPOINT


def test_a_process_inherits_nothing_of_awss_and_ours() -> None:
    inherited = {"PATH": "/bin", "AWS_PROFILE": "work", "COLDSTREAM_TABLE": "real", "AWS_ROLE_ARN": "arn"}
    environment = process_environment(inherited, {"COLDSTREAM_TABLE": "local"}, {"AWS_REGION": "eu-north-1"})
    assert environment["PATH"] == "/bin"
    assert environment["COLDSTREAM_TABLE"] == "local"
    assert environment["AWS_REGION"] == "eu-north-1"
    assert "AWS_PROFILE" not in environment
    assert "AWS_ROLE_ARN" not in environment


def test_a_client_minds_no_profile_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "there-is-none")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert client("sqs", aws_environment({}, ENDPOINT)).meta.endpoint_url == ENDPOINT
