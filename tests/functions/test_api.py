"""The API function: its OpenAPI document, its routes, and the archive that the environment names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from coldstream.api import serving
from coldstream.api.app import PATHS
from coldstream.jobs.job import Job
from coldstream.jobs.public import public_job
from coldstream.jobs.specs import SPECS, JobKind, parse_spec
from coldstream.resolve.problem import MEDIA_TYPE
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import TimestampMs
from functions.api import app
from tests.jobs.test_specs import LEAST
from tests.support.asked_api import AskedApi, api

__all__ = ["api"]

ROOT = Path(__file__).parents[2]
METHODS = {"get", "put", "post", "patch", "delete"}


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(app.openapi())


def operations(document: Any) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    }


def test_the_openapi_document_is_valid_and_what_is_committed(document: Any) -> None:
    validate(document)
    assert (ROOT / "docs/openapi-jobs.json").read_text() == app.openapi(), "run `make generate`"


def test_the_methods_of_each_path_are_those_of_the_document(document: Any) -> None:
    told = {path: set(methods.split(", ")) for path, methods in PATHS.items()}
    assert told == {path: {method.upper() for method in methods} for path, methods in document["paths"].items()}


def test_every_route_is_documented_with_its_problems(document: Any) -> None:
    for name, operation in operations(document).items():
        assert {"400", "401", "403", "429", "500", "503"} <= operation["responses"].keys(), name
        assert operation["summary"], name
        for status, response in operation["responses"].items():
            if status in {"400", "404", "409", "415", "500", "503"}:
                assert response["content"].keys() == {MEDIA_TYPE}, (name, status)


def test_names_of_operations_are_told_apart(document: Any) -> None:
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(names) == len(set(names))


def test_every_kind_of_job_has_its_schema(document: Any) -> None:
    spec = document["components"]["schemas"]["JobSpec"]
    assert spec["discriminator"]["mapping"].keys() == set(JobKind)
    assert {part["$ref"].rpartition("/")[2] for part in spec["oneOf"]} == {one.__name__ for one in SPECS.values()}


def test_an_edit_has_the_fields_that_some_kind_lets_change(document: Any) -> None:
    edit = document["components"]["schemas"]["JobEdit"]
    assert edit["properties"].keys() == set().union(*(kind.EDITABLE for kind in SPECS.values()))
    assert not any("default" in field for field in edit["properties"].values())


def test_a_job_is_shown_with_every_field_that_is_described(document: Any) -> None:
    job = Job("x", parse_spec({"kind": "scrub", **LEAST[JobKind.SCRUB]}), TimestampMs(1))
    assert public_job(job).keys() == document["components"]["schemas"]["JobBody"]["properties"].keys()


def test_it_works_on_dynamodb_and_s3_as_the_environment_says(
    api: AskedApi, table_name: str, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # of the fixture: the archive in memory
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    monkeypatch.setenv("COLDSTREAM_LOCAL", "true")
    serving.served.cache_clear()
    try:
        created = api("POST", "/v1/jobs", {"kind": "scrub"})
        assert created.status == 201
        assert api("GET", created.headers["location"]).body == created.body
        assert isinstance(serving.served().table, DynamoTable)
        assert api("POST", f"{created.headers['location']}/cancel").body["state"] == "cancelled"
        assert api("DELETE", created.headers["location"]).status == 204
    finally:
        serving.served.cache_clear()


def test_without_an_authorizer_nobody_may_anything_unless_it_runs_locally(
    api: AskedApi, table_name: str, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    monkeypatch.delenv("COLDSTREAM_LOCAL", raising=False)
    serving.served.cache_clear()
    try:
        assert api("GET", "/v1/jobs").status == 403
        assert api("POST", "/v1/jobs", {"kind": "scrub"}).status == 403
    finally:
        serving.served.cache_clear()
