"""Schemathesis asks the APIs by their documents: every check, of good requests, bad ones, and sequences of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from coldstream.api.job_rights import JobRights
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.resolver import Resolver
from coldstream.runtime import resolving
from functions.resolver import app as resolver_app
from tests.support.archive import NOW, ChunkArchive, Spec
from tests.support.asked_api import ApiContext, AskedApi
from tests.support.served_api import ROOT, ask_schemathesis, served

pytestmark = [pytest.mark.server, pytest.mark.slow]

SCOPE = "coldstream.jobs:write coldstream.read:*/*"
EXAMPLES = "25"
LEAST_ASKED = 200
"""Requests; with fewer, Schemathesis has not asked what it should have."""


def asked(report: str) -> int:
    """Return how many requests passed; all did if the exit code is 0."""
    told = re.search(r"(\d+) generated, (\d+) passed", report)
    assert told is not None, report
    assert told[1] == told[2]
    return int(told[1])


def without_opaque_texts(source: Path, directory: Path) -> Path:
    """Write a document without the parameters whose values only an earlier answer has: nobody else can make them."""
    document = json.loads(source.read_text())
    for path, methods in document["paths"].items():
        for operation in methods.values() if path.startswith("/v1/stream") else ():
            operation["parameters"] = [each for each in operation["parameters"] if each["name"] != "cursor"]
    written = directory / source.name
    written.write_text(json.dumps(document))
    return written


def test_nothing_is_found_in_the_api_of_jobs_and_streams(api: AskedApi, tmp_path: Path) -> None:
    api.archive.add("orders", 12, without=(4,))
    api.archive.add("bills", 3)
    api.permit(Permissions(), JobRights())
    document = without_opaque_texts(ROOT / "docs/openapi-jobs.json", tmp_path)
    with served(api.invoke) as url:
        code, report = ask_schemathesis(document, url, "--max-examples", EXAMPLES, scope=SCOPE, directory=tmp_path)
    assert code == 0, report
    assert asked(report) > LEAST_ASKED


def test_nothing_is_found_in_the_resolvers_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ChunkArchive(sparse_bytes=1)
    archive.add(0, [Spec(5, 1000), Spec(5, 2000)])
    archive.add(30, [Spec(5, 6000)])
    resolver = Resolver(
        archive.table, archive.objects, url_expiry_s=60, permissions=Permissions(archive.table), now=lambda: NOW
    )
    monkeypatch.setattr(resolving, "resolver", lambda: resolver)
    # Its parameters exclude each other, which a document cannot say; and it lists nothing to whom it does not know.
    left_out = ("--exclude-checks", "positive_data_acceptance,ignored_auth")
    with served(lambda event: resolver_app.lambda_handler(event, ApiContext())) as url:
        document = ROOT / "docs/openapi.json"
        code, report = ask_schemathesis(
            document, url, *left_out, "--max-examples", EXAMPLES, scope=SCOPE, directory=tmp_path
        )
    assert code == 0, report
    assert asked(report) > LEAST_ASKED


def test_an_answer_that_is_not_described_would_be_found(tmp_path: Path) -> None:
    with served(lambda _: {"statusCode": 418, "body": "{}"}) as url:
        document = ROOT / "docs/openapi-jobs.json"
        options = ("--include-operation-id", "listJobs", "--phases", "coverage")
        code, report = ask_schemathesis(document, url, *options, scope=SCOPE, directory=tmp_path)
    assert code == 1
    assert "Received: 418" in report
