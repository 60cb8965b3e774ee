"""Queue and EMR by AWS's SDK, at an emulated AWS and at answers that it would give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.stub import Stubber

from coldstream.dispatch.emr_arguments import ScriptCall
from coldstream.dispatch.emr_run import MAX_MINUTES, EmrRun, EmrServerless, submit_parameters
from coldstream.dispatch.job_queue import SqsJobQueue, job_of, message_of
from coldstream.dispatch.runner import AvailableRunners
from coldstream.dispatch.settings import DispatchSettings, EmrSettings
from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidEventError,
    InvalidSettingError,
    RunnerError,
    UnavailableError,
)
from coldstream.store.settings import Settings
from tests.support.server import ROOT

ROLE = "arn:aws:iam::123456789012:role/coldstream-spark"
ARN = "arn:aws:emr-serverless:eu-central-1:123456789012:/applications/00app/jobruns/00run"
SCRIPTS = "s3://bucket/p/spark/"
ARCHIVE = Settings(bucket="bucket", table="table", prefix="p/")
CALL = ScriptCall("compact.py", ("--all", "--report=spark-1"))


@pytest.fixture
def queue_url(aws: str) -> str:
    sqs = boto3.session.Session().client("sqs")
    return str(sqs.create_queue(QueueName=f"jobs-{uuid4()}")["QueueUrl"])


def test_a_message_names_a_job_and_is_counted_until_it_is_taken(queue_url: str) -> None:
    queue = SqsJobQueue(queue_url)
    queue.send("2sb1jww6fz-abcdef")
    queue.send("2sb1jww6fz-abcdeg")
    assert queue.waiting() == 2
    sqs = boto3.session.Session().client("sqs")
    found = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10)["Messages"]
    assert {job_of(one["Body"]) for one in found} == {"2sb1jww6fz-abcdef", "2sb1jww6fz-abcdeg"}
    assert queue.waiting() == 0


def test_a_queue_that_is_not_there_is_an_error_of_ours(queue_url: str) -> None:
    with pytest.raises(ColdstreamError, match="queue"):
        SqsJobQueue(f"{queue_url}-gone").send("x")


@pytest.mark.parametrize(
    "body", ["", "x", "[]", "{}", '{"job": 1}', '{"job": ""}', json.dumps({"job": "x" * 256}), "null"]
)
def test_a_message_that_names_no_job_is_refused(body: str) -> None:
    with pytest.raises(InvalidEventError):
        job_of(body)


def test_a_message_is_read_back() -> None:
    assert job_of(message_of("ö-1")) == "ö-1"


@pytest.fixture
def emr(aws: str) -> EmrServerless:
    client = boto3.session.Session().client("emr-serverless")
    application = client.create_application(name="x", releaseLabel="emr-6.6.0", type="SPARK")["applicationId"]
    return EmrServerless(EmrSettings(application, ROLE, SCRIPTS), ARCHIVE)


def test_a_run_is_started_looked_at_and_cancelled(emr: EmrServerless) -> None:
    run_id = emr.start("job-1", "coldstream compact job", CALL, {"coldstream-job": "job"})
    found = emr.look(run_id)
    assert found is not None
    assert found.id == run_id
    told = emr._client.get_job_run(applicationId=emr._emr.application, jobRunId=run_id)["jobRun"]
    spark = told["jobDriver"]["sparkSubmit"]
    assert spark["entryPoint"] == "s3://bucket/p/spark/compact.py"
    assert spark["entryPointArguments"] == ["--all", "--report=spark-1"]
    assert "driverEnv.COLDSTREAM_TABLE=table" in spark["sparkSubmitParameters"]
    assert (told["executionRole"], told["name"], told["tags"]) == (
        ROLE,
        "coldstream compact job",
        {"coldstream-job": "job"},
    )
    emr.cancel(run_id)
    cancelled = emr.look(run_id)
    assert cancelled is not None
    assert cancelled.state in {"CANCELLING", "CANCELLED"}


def test_a_run_that_is_not_there_is_none_and_cancelling_it_does_nothing(emr: EmrServerless) -> None:
    assert emr.look("00gone") is None
    emr.cancel("00gone")


@pytest.fixture
def stubbed(aws: str) -> Iterator[tuple[EmrServerless, Stubber]]:
    emr = EmrServerless(EmrSettings("00app", ROLE, SCRIPTS), ARCHIVE)
    with Stubber(emr._client) as stub:
        yield emr, stub


def test_what_is_asked_of_emr_has_the_token_and_a_bound(stubbed: tuple[EmrServerless, Stubber]) -> None:
    emr, stub = stubbed
    expected: dict[str, Any] = {
        "applicationId": "00app",
        "clientToken": "job-3",
        "executionRoleArn": ROLE,
        "executionTimeoutMinutes": MAX_MINUTES,
        "name": "n",
        "tags": {},
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": f"{SCRIPTS}compact.py",
                "entryPointArguments": list(CALL.arguments),
                "sparkSubmitParameters": emr._parameters,
            }
        },
    }
    answer = {"applicationId": "00app", "jobRunId": "00run", "arn": ARN}
    stub.add_response("start_job_run", answer, expected)
    assert emr.start("job-3", "n", CALL, {}) == "00run"


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ValidationException", 400, RunnerError),
        ("ResourceNotFoundException", 404, RunnerError),
        ("ConflictException", 409, RunnerError),
        ("AccessDeniedException", 403, AccessDeniedError),
        ("InternalServerException", 500, UnavailableError),
        ("ThrottlingException", 429, UnavailableError),
    ],
)
def test_refusals_of_emr_are_errors_of_ours(
    stubbed: tuple[EmrServerless, Stubber], code: str, status: int, expected: type[Exception]
) -> None:
    emr, stub = stubbed
    stub.add_client_error("start_job_run", code, "no", http_status_code=status)
    with pytest.raises(expected):
        emr.start("job-3", "n", CALL, {})


def test_states_and_details_come_as_they_are(stubbed: tuple[EmrServerless, Stubber]) -> None:
    emr, stub = stubbed
    run = {
        "applicationId": "00app",
        "jobRunId": "00run",
        "arn": ARN,
        "createdBy": "arn:aws:iam::123456789012:role/x",
        "createdAt": 0,
        "updatedAt": 0,
        "executionRole": ROLE,
        "state": "FAILED",
        "stateDetails": "exit code 5",
        "releaseLabel": "emr-spark-8.0.0",
        "jobDriver": {"sparkSubmit": {"entryPoint": "x"}},
    }
    stub.add_response("get_job_run", {"jobRun": run})
    assert emr.look("00run") == EmrRun("00run", "FAILED", "exit code 5")
    assert EmrRun("00run", "FAILED").has_ended
    assert not EmrRun("00run", "CANCELLING").has_ended


def test_spark_is_given_what_its_page_says() -> None:
    page = (ROOT / "docs/spark.md").read_text()
    told = dict(re.findall(r"--conf ([\w.-]+)=(\S+)", page.partition("<<END")[2].partition("    END")[0]))
    values = {"$region": "eu-central-1", "$bucket": "b", "$table": "t"}
    told = {name: values.get(value, value.replace("${files}", SCRIPTS)) for name, value in told.items()}
    given = submit_parameters(SCRIPTS, Settings("b", "t"), "eu-central-1")
    assert dict(re.findall(r"--conf ([\w.-]+)=(\S+)", given)) == told
    assert "driverEnv.COLDSTREAM_PREFIX=p/" in submit_parameters(SCRIPTS, ARCHIVE, "eu-central-1")


@pytest.mark.parametrize("prefix", ["a b/", "a'/", 'a"/', "ö/", "a\\/"])
def test_what_spark_would_split_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSettingError, match="COLDSTREAM_PREFIX"):
        submit_parameters(SCRIPTS, Settings("b", "t", prefix), "eu-central-1")


COMPLETE = {
    "COLDSTREAM_JOBS_QUEUE": "https://sqs.eu-central-1.amazonaws.com/123456789012/jobs",
    "COLDSTREAM_EMR_APPLICATION": "00f5abc",
    "COLDSTREAM_EMR_ROLE": ROLE,
    "COLDSTREAM_EMR_SCRIPTS": SCRIPTS,
}


def test_the_settings_are_read_and_may_be_absent() -> None:
    settings = DispatchSettings.from_environment(COMPLETE)
    assert settings.emr == EmrSettings("00f5abc", ROLE, SCRIPTS)
    assert settings.available == AvailableRunners(has_queue=True, has_emr=True)
    assert DispatchSettings.from_environment({}).available == AvailableRunners()
    assert DispatchSettings.from_environment(dict.fromkeys(COMPLETE, "")) == DispatchSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COLDSTREAM_JOBS_QUEUE", "arn:aws:sqs:x"),
        ("COLDSTREAM_EMR_APPLICATION", ""),
        ("COLDSTREAM_EMR_APPLICATION", "A b"),
        ("COLDSTREAM_EMR_ROLE", "role"),
        ("COLDSTREAM_EMR_SCRIPTS", "s3://bucket/no-slash"),
        ("COLDSTREAM_EMR_SCRIPTS", "s3a://bucket/x/"),
    ],
)
def test_a_malformed_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        DispatchSettings.from_environment({**COMPLETE, name: value})
    assert raised.value.field == name
