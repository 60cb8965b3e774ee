"""The control planes: an answer that is not whole, or not from AWS, is asked for again, and never believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from zlib import crc32

import pytest
from botocore.awsrequest import AWSResponse

from coldstream.errors import UnavailableError
from coldstream.operate import aws_stack
from coldstream.operate.aws_stack import AwsStack
from tests.store.wire import Wire, answer, foreign_answer

TABLE = json.dumps({"Table": {"TableStatus": "ACTIVE"}}).encode()
BACKUPS = json.dumps({"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "ENABLED"}}).encode()
BROKEN: dict[str, Callable[[], AWSResponse]] = {
    "a proxy's page": lambda: foreign_answer(200, b"<html>Please sign in.</html>"),
    "of another checksum": lambda: answer(200, BACKUPS.replace(b"C", b"B", 1), x_amz_crc32=str(crc32(BACKUPS))),
    "without its field": lambda: answer(200, b"{}"),
    "cut": lambda: answer(200, BACKUPS[:9], Content_Length=str(len(BACKUPS))),
}


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> AwsStack:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    return AwsStack()


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_table_is_not_told_from_a_broken_answer(stack: AwsStack, broken: Callable[[], AWSResponse]) -> None:
    client = stack._client("dynamodb")
    with Wire(client, answer(200, TABLE), broken(), answer(200, BACKUPS)) as seen:
        assert stack.table("a-table").status == "ACTIVE"
    assert len(seen.sent) == 3
    script = [answer(200, TABLE), *(broken() for _ in range(aws_stack.ATTEMPTS))]
    with Wire(client, *script), pytest.raises(UnavailableError, match="backups of table a-table"):
        stack.table("a-table")
