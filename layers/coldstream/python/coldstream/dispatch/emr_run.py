"""EMR Serverless: job runs that are started once, looked at and cancelled, by boto3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from coldstream.dispatch.emr_arguments import ScriptCall
from coldstream.dispatch.settings import EmrSettings
from coldstream.errors import InvalidSettingError, RunnerError
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, error_code, from_aws
from coldstream.store.settings import Settings

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 15
ATTEMPTS = 4
"""Of one request, by the SDK (its retry mode `standard`: exponential backoff with jitter)."""

MAX_MINUTES = 7 * 24 * 60
"""A run that takes longer is cancelled by EMR. Its default would be 12 hours."""

MAX_DETAILS = 1000

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class EmrRun:
    """A run as EMR tells it: its state, in EMR's words, and what it says of it."""

    id: str
    state: str
    details: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in {"SUCCESS", "FAILED", "CANCELLED"}


class EmrRuns(Protocol):
    """The runs of an application."""

    def start(self, token: str, name: str, call: ScriptCall, tags: Mapping[str, str]) -> str:
        """Start a run, and return its id; with a token that was given before, that of the run of then.

        Cost: one request. Raises RunnerError if EMR refuses it for good, UnavailableError.
        """
        ...

    def look(self, run_id: str) -> EmrRun | None:
        """Return a run, None if EMR knows none of that id. Cost: one request. Raises UnavailableError."""
        ...

    def cancel(self, run_id: str) -> None:
        """Have a run end, if it has not: that takes a while. Cost: one request. Raises UnavailableError."""
        ...


class EmrServerless:
    """Implements `EmrRuns` on an application of EMR Serverless. The SDK finds region and credentials."""

    def __init__(self, emr: EmrSettings, archive: Settings) -> None:
        self._emr = emr
        try:
            self._client: Any = boto3.session.Session().client(
                "emr-serverless",
                config=Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                ),
            )
        except BotoCoreError as err:
            raise from_aws(err, f"client of EMR application {emr.application}") from err
        refuse_broken_answers(self._client.meta.events)
        self._parameters = submit_parameters(emr.scripts, archive, self._client.meta.region_name)

    def start(self, token: str, name: str, call: ScriptCall, tags: Mapping[str, str]) -> str:
        """Start a run. Cost: one StartJobRun."""
        driver = {
            "sparkSubmit": {
                "entryPoint": self._emr.scripts + call.script,
                "entryPointArguments": list(call.arguments),
                "sparkSubmitParameters": self._parameters,
            }
        }
        try:
            answer = self._call(
                "StartJobRun",
                lambda: self._client.start_job_run(
                    applicationId=self._emr.application,
                    clientToken=token,
                    executionRoleArn=self._emr.role,
                    jobDriver=driver,
                    executionTimeoutMinutes=MAX_MINUTES,
                    name=name,
                    tags=dict(tags),
                ),
            )
        except ClientError as err:
            raise RunnerError(f"EMR refuses the run: {err}") from err
        return str(answer["jobRunId"])

    def look(self, run_id: str) -> EmrRun | None:
        """Ask for a run. Cost: one GetJobRun."""
        try:
            answer = self._call(
                "GetJobRun",
                lambda: self._client.get_job_run(applicationId=self._emr.application, jobRunId=run_id),
            )
        except ClientError:
            return None
        found = answer["jobRun"]
        return EmrRun(run_id, str(found["state"]), str(found.get("stateDetails") or "")[:MAX_DETAILS])

    def cancel(self, run_id: str) -> None:
        """Have a run end. Cost: one CancelJobRun."""
        try:
            self._call(
                "CancelJobRun",
                lambda: self._client.cancel_job_run(applicationId=self._emr.application, jobRunId=run_id),
            )
        except ClientError:
            return  # it has ended, or is gone: `look` tells

    def _call(self, name: str, call: Callable[[], _Answer]) -> _Answer:
        """Make a call. Raises ClientError if EMR refuses just this one, and what `from_aws` makes of other errors."""
        try:
            return call()
        except SDK_ERRORS as err:
            refused = {"ValidationException", "ResourceNotFoundException", "ConflictException"}
            if isinstance(err, ClientError) and error_code(err) in refused:
                raise
            raise from_aws(err, f"{name} of EMR application {self._emr.application}") from err


def submit_parameters(scripts: str, archive: Settings, region: str) -> str:
    """Return the options of spark-submit, as docs/spark.md has them. Raises InvalidSettingError.

    They are one text that Spark splits at spaces, so no value may have any.
    """
    values = {"COLDSTREAM_BUCKET": archive.bucket, "COLDSTREAM_TABLE": archive.table, "AWS_DEFAULT_REGION": region}
    if archive.prefix:
        values["COLDSTREAM_PREFIX"] = archive.prefix
    for name, value in values.items():
        if not value or not value.isascii() or any(one.isspace() or one in "'\"\\" for one in value):
            raise InvalidSettingError(name, f"{value!r} cannot be given to Spark")
    conf = {
        "spark.submit.pyFiles": f"{scripts}coldstream.zip",
        "spark.archives": f"{scripts}dependencies.tar.gz#dependencies",
        "spark.pyspark.python": "python3.11",
        "spark.pyspark.driver.python": "python3.11",
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": "python3.11",
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": "python3.11",
        "spark.executorEnv.PYSPARK_PYTHON": "python3.11",
        "spark.emr-serverless.driverEnv.PYTHONPATH": "./dependencies",
        "spark.executorEnv.PYTHONPATH": "./dependencies",
        **{f"spark.emr-serverless.driverEnv.{name}": value for name, value in values.items()},
        "spark.executorEnv.AWS_DEFAULT_REGION": region,
        "spark.driver.cores": "2",
        "spark.driver.memory": "3g",
        "spark.driver.memoryOverhead": "2g",
        "spark.executor.cores": "4",
        "spark.executor.memory": "6g",
        "spark.executor.memoryOverhead": "3g",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "3",
    }
    return " ".join(f"--conf {name}={value}" for name, value in conf.items())
