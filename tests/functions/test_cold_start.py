"""What a function's process loads before its first answer: checked in a new interpreter, by module, not by time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from tests.support.archive import STREAM, ChunkArchive, steady

ROOT = Path(__file__).parents[2]

SDK = {"boto3", "botocore.exceptions", "botocore.session", "pynamodb", "urllib3"}
"""Not `botocore` itself: Powertools loads it, at almost no cost, to name itself to the SDK."""

NOT_FOR_AN_ANSWER = SDK | {
    "aws_lambda_powertools.event_handler",
    "awscrt",
    "asyncio",
    "coldstream.manifest.appender",
    "coldstream.manifest.policy",
    "coldstream.store.ports",
    "multiprocessing",
    "pydantic",
}
NOT_FOR_UPKEEP = {
    "aws_lambda_powertools.event_handler",
    "pydantic",
    "coldstream.cli",
    "coldstream.resolve",
    "coldstream.runtime.query",
    "coldstream.runtime.resolving",
}
NOT_TO_IMPORT = {
    "resolver": NOT_FOR_AN_ANSWER | {"ssl", "http.client", "concurrent.futures"},
    "upload": {
        "aws_lambda_powertools.event_handler",
        "aws_lambda_powertools.utilities.batch",
        "asyncio",
        "boto3",
        "coldstream.resolve",
        "coldstream.runtime.resolver_api",
        "pydantic",
        "s3transfer",
    },
    **dict.fromkeys(("retention", "sweep", "garbage", "scrub", "erase"), NOT_FOR_UPKEEP),
    **dict.fromkeys(("job_runner", "job_tick"), NOT_FOR_UPKEEP - {"pydantic"}),
    "api": {"coldstream.cli", "starlette", "jinja2", "pyarrow", "rstream"},
    "console": {"coldstream.cli", "aws_lambda_powertools.event_handler", "pyarrow", "rstream"},
}

IMPORT = """
import json, sys
from app import lambda_handler
print(json.dumps({"loaded": sorted(sys.modules)}))
"""

ANSWER = """
import json, sys, types
from app import lambda_handler
context = types.SimpleNamespace(
    function_name="resolver", memory_limit_in_mb=512, invoked_function_arn="arn", aws_request_id="1"
)
answer = lambda_handler(json.load(sys.stdin), context)
print(json.dumps({"answer": answer, "loaded": sorted(sys.modules)}))
"""


def run(function: str, program: str, event: Any = None, **variables: str) -> dict[str, Any]:
    """Run a program with only these environment variables; return the last thing it prints."""
    path = os.pathsep.join((str(ROOT / "functions" / function), str(ROOT / "layers/coldstream/python")))
    process = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(event),
        env={"PATH": os.defpath, "PYTHONPATH": path, "HOME": os.devnull, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("function", sorted(NOT_TO_IMPORT))
def test_a_function_is_imported_without_what_it_does_not_need_at_once(function: str) -> None:
    loaded = set(run(function, IMPORT)["loaded"])
    assert loaded & NOT_TO_IMPORT[function] == set()
    assert {path.parent.name for path in (ROOT / "functions").glob("*/app.py")} == set(NOT_TO_IMPORT)


@pytest.mark.parametrize("function", sorted(NOT_TO_IMPORT))
def test_importing_a_function_makes_no_client_and_reads_no_setting(function: str) -> None:
    program = """
import json
import botocore.session
def fail(*args, **kwargs): raise AssertionError("a client at import time")
botocore.session.Session.create_client = fail
from app import lambda_handler
print(json.dumps({"is_there": callable(lambda_handler)}))
"""
    assert run(function, program) == {"is_there": True}


def test_the_resolver_answers_without_an_sdk_and_without_powertools_api(table_name: str, s3_objects: S3Objects) -> None:
    archive = ChunkArchive()
    archive.table = DynamoTable(table_name)
    archive.objects = s3_objects
    archive.add(0, steady(5, 1000, 2000))
    endpoints = {name: value for name, value in os.environ.items() if name.startswith("AWS_ENDPOINT_URL")}
    event = json.loads((ROOT / "events/resolver.json").read_text())
    event["queryStringParameters"] = {"vhost": STREAM.vhost, "name": STREAM.name, "offset": "7"}
    found = run(
        "resolver",
        ANSWER,
        event,
        COLDSTREAM_BUCKET=s3_objects.bucket,
        COLDSTREAM_TABLE=table_name,
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_DEFAULT_REGION=os.environ["AWS_DEFAULT_REGION"],
        **endpoints,
    )
    assert found["answer"]["statusCode"] == 200
    assert set(found["loaded"]) & NOT_FOR_AN_ANSWER == set()
