"""The resolver function, as API Gateway calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import pytest
import urllib3
from openapi_spec_validator import validate

from coldstream.errors import (
    AccessDeniedError,
    CorruptionError,
    InvalidQueryError,
    InvalidSettingError,
    UnavailableError,
)
from coldstream.format.chunk import iter_chunks
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.resolver import Resolver
from coldstream.runtime import audit, resolver_api, resolving
from coldstream.runtime.query import plain_query
from coldstream.store.memory.table import MemoryTable
from coldstream.store.objects import S3Objects
from coldstream.store.sortkeys import registry_key
from coldstream.store.table import DynamoTable
from functions.resolver import app
from tests.support.archive import NOW, STREAM, ChunkArchive, Spec, steady

ROOT = Path(__file__).parents[2]
PROBLEM = "application/problem+json"
INSTANCE = "urn:coldstream:request:52fdfc07-2182-154f-163f-5f0f9a621d72"


@dataclass
class Context:
    function_name = "resolver"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:resolver"
    aws_request_id = "52fdfc07-2182-154f-163f-5f0f9a621d72"


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    headers: dict[str, str]


def event(path: str, query: str = "", method: str = "GET", stage: str = "$default") -> dict[str, Any]:
    """Make the event that API Gateway makes of a request, payload format 2.0."""
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        parameters[name] = f"{parameters[name]},{value}" if name in parameters else value
    raw_path = path if stage == "$default" else f"/{stage}{path}"
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": raw_path,
        "rawQueryString": query,
        "headers": {"host": "abc123.execute-api.eu-central-1.amazonaws.com", "accept": "*/*"},
        **({"queryStringParameters": parameters} if parameters else {}),
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "abc123",
            "domainName": "abc123.execute-api.eu-central-1.amazonaws.com",
            "http": {
                "method": method,
                "path": raw_path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "test",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": "$default",
            "stage": stage,
            "timeEpoch": 1763700000000,
        },
        "isBase64Encoded": False,
    }


def call(path: str, query: str = "", method: str = "GET", stage: str = "$default") -> Reply:
    answer = app.lambda_handler(event(path, query, method, stage), Context())
    assert not answer["isBase64Encoded"]
    return Reply(answer["statusCode"], json.loads(answer["body"]), answer["headers"])


def ask(**parameters: object) -> Reply:
    return call("/ranges", urlencode({"vhost": "/", "name": "orders"} | parameters, quote_via=quote, safe=""))


def use(monkeypatch: pytest.MonkeyPatch, archive: ChunkArchive) -> None:
    resolver = Resolver(archive.table, archive.objects, url_expiry_s=60, now=lambda: NOW)
    monkeypatch.setattr(resolving, "resolver", lambda: resolver)


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> ChunkArchive:
    archive = ChunkArchive(sparse_bytes=1)
    archive.add(0, [Spec(5, 1000), Spec(5, 2000)])
    archive.add(10, [Spec(5, 3000), Spec(5, 4000)])
    archive.add(30, [Spec(5, 6000)])
    use(monkeypatch, archive)
    return archive


@pytest.mark.usefixtures("archive")
def test_an_answer_has_everything_a_client_needs(archive: ChunkArchive) -> None:
    reply = ask(offset=7)
    entry = archive.table.log_from_offset(STREAM.incarnation, archive.chunks[0].header.next_offset, 1).entries[0]
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    assert list(reply.body) == ["stream", "outcome", "ranges", "gap", "tail", "cursor", "floor"]
    assert reply.body["stream"] == {"vhost": "/", "name": "orders", "incarnation": STREAM.incarnation}
    first, second = reply.body["ranges"]
    assert first == {
        "bucket": "memory",
        "key": entry.key,
        "first_byte": archive.chunks[1].position,
        "next_byte": 8 + entry.data_bytes,
        "first_offset": 5,
        "next_offset": 10,
        "first_timestamp": 2000,
        "last_timestamp": 2000,
        "encoding": "identity",
        "data_bytes": 8 + entry.data_bytes - archive.chunks[1].position,
        "crc32": first["crc32"],
        "url": first["url"],
        "range_header": f"bytes={archive.chunks[1].position}-{7 + entry.data_bytes}",
        "expires_at": NOW + 60_000,
        "storage_class": None,
        "erased": False,
        "must_be_restored": False,
    }
    assert second["first_offset"] == 10
    assert reply.body["gap"] == {"first_offset": 20, "next_offset": 30, "reason": None}
    assert reply.body["tail"] is None
    assert reply.body["cursor"] is None


@pytest.mark.parametrize(
    ("asked", "outcome", "first", "tail"),
    [
        ({"spec": "first"}, "ranges", 0, None),
        ({"spec": "last"}, "ranges", 30, 35),
        ({"spec": "next"}, "tail", None, 35),
        ({"offset": 0}, "ranges", 0, None),
        ({"offset": 34}, "ranges", 30, 35),
        ({"offset": 35}, "tail", None, 35),
        ({"offset": "18446744073709551615"}, "tail", None, 35),
        ({"offset": 25}, "gap", None, None),
        ({"timestamp": 2001}, "ranges", 10, None),
        ({"timestamp": "1970-01-01T00:00:02.001Z"}, "ranges", 10, None),
        ({"timestamp": "1970-01-01T01:00:02.000001+01:00"}, "ranges", 10, None),
        ({"timestamp": -5}, "ranges", 0, None),
        ({"timestamp": 6001}, "tail", None, 35),
        ({"timestamp": 4001}, "gap", None, None),
    ],
    ids=str,
)
@pytest.mark.usefixtures("archive")
def test_every_offset_spec_is_understood(asked: dict[str, object], outcome: str, first: int | None, tail: int | None):
    reply = ask(**asked)
    assert reply.status == 200
    assert reply.body["outcome"] == outcome
    assert (reply.body["ranges"][0]["first_offset"] if reply.body["ranges"] else None) == first
    assert reply.body["tail"] == (None if tail is None else {"next_offset": tail})


@pytest.mark.parametrize(
    "query",
    [
        "vhost=/&name=orders&spec=first",
        "vhost=/&name=orders&spec=last&X-Amz-Date=1,2",
        "vhost=/&name=orders&offset=25",
        "vhost=/&name=orders&offset=7&max_ranges=1&range_bytes=1&max_bytes=1000000",
        "vhost=/&name=orders&offset=00000000000000000007&precise=true",
        "vhost=/&name=orders&offset=18446744073709551616",
        "vhost=/&name=orders&timestamp=2001&precise=false",
        "vhost=/&name=orders&timestamp=yesterday",
        "vhost=/&name=orders&cursor=eyJ4Ijo",
        "vhost=/&name=orders",
        "vhost=/&name=orders&spec=first&offset=7",
        "vhost=/&name=orders&spec=first&incarnation=a%2Fb",
        f"vhost=/&name=orders&spec=first&incarnation={STREAM.incarnation}",
        "vhost=%2F&name=%C3%BC%E2%98%83%22&spec=first",
        "vhost=&name=orders&spec=first",
    ],
)
@pytest.mark.usefixtures("archive")
def test_what_is_plainly_a_query_is_answered_as_powertools_answers_it(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = event("/ranges", query)
    with suppress(InvalidQueryError):
        assert plain_query(asked) is not None
    answer = app.lambda_handler(asked, Context())
    monkeypatch.setattr(app, "plain_query", lambda _: None)
    assert app.lambda_handler(asked, Context()) == answer


@pytest.mark.usefixtures("archive")
def test_bounds_and_cursors_go_through_the_whole_stream() -> None:
    reply = ask(spec="first", max_ranges=1, range_bytes=1)
    seen = []
    while reply.body["cursor"] is not None:
        seen.append(reply.body["ranges"][0]["first_offset"])
        reply = ask(cursor=reply.body["cursor"], max_ranges=1, range_bytes=1)
    assert seen == [0, 5, 10]
    assert [part["first_offset"] for part in reply.body["ranges"]] == [15]
    assert reply.body["gap"]["first_offset"] == 20


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "vhost"),
        ("vhost=/", "name"),
        ("vhost=&name=orders&spec=first", "vhost"),
        ("vhost=/&name=&spec=first", "name"),
        ("vhost=/&name=" + "x" * 256 + "&spec=first", "name"),
        ("vhost=/&name=orders", "spec"),
        ("vhost=/&name=orders&spec=first&offset=1", "spec"),
        ("vhost=/&name=orders&spec=middle", "spec"),
        ("vhost=/&name=orders&spec=", "spec"),
        ("vhost=/&name=orders&offset=-1", "offset"),
        ("vhost=/&name=orders&offset=1_0", "offset"),
        ("vhost=/&name=orders&offset=%D9%A1", "offset"),
        ("vhost=/&name=orders&offset=1%0A", "offset"),
        ("vhost=/&name=orders&offset=18446744073709551616", "offset"),
        ("vhost=/&name=orders&offset=1&offset=2", "offset"),
        ("vhost=/&vhost=a&name=orders&spec=first", "vhost"),
        ("vhost=/&name=orders&timestamp=yesterday", "timestamp"),
        ("vhost=/&name=orders&timestamp=2026-01-31T09:30:00", "timestamp"),
        ("vhost=/&name=orders&timestamp=9223372036854775808", "timestamp"),
        ("vhost=/&name=orders&cursor=", "cursor"),
        ("vhost=/&name=orders&cursor=xyz", "cursor"),
        ("vhost=/&name=orders&spec=first&incarnation=a/b", "incarnation"),
        ("vhost=/&name=orders&spec=first&incarnation=", "incarnation"),
        ("vhost=/&name=orders&spec=first&max_ranges=0", "max_ranges"),
        ("vhost=/&name=orders&spec=first&max_ranges=1001", "max_ranges"),
        ("vhost=/&name=orders&spec=first&max_bytes=0", "max_bytes"),
        ("vhost=/&name=orders&spec=first&max_bytes=many", "max_bytes"),
        ("vhost=/&name=orders&spec=first&range_bytes=0", "range_bytes"),
        ("vhost=/&name=orders&spec=first&precise=perhaps", "precise"),
        ("vhost=/&name=orders&spec=first&incarnatoin=__orders_1", "incarnatoin"),
        ("vhost=/&name=orders&spec=first&limit=1", "limit"),
    ],
)
@pytest.mark.usefixtures("archive")
def test_an_invalid_query_is_a_problem_that_names_the_field(query: str, field: str) -> None:
    reply = call("/ranges", query)
    assert reply.status == 400
    assert reply.headers["Content-Type"] == PROBLEM
    assert reply.body["type"] == "urn:coldstream:problem:invalid-query"
    assert reply.body["status"] == 400
    assert reply.body["field"] == field
    assert reply.body["instance"] == INSTANCE
    assert field in reply.body["detail"]


@pytest.mark.usefixtures("archive")
def test_a_signature_in_the_query_is_no_parameter() -> None:
    assert call("/ranges", "vhost=/&name=orders&spec=first&X-Amz-Algorithm=AWS4-HMAC-SHA256").status == 200


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/ranges", "vhost=/&name=payments&spec=first"),
        ("/ranges", "vhost=/&name=orders&spec=first&incarnation=__orders_0"),
        ("/ranges", f"vhost=/&name=payments&spec=first&incarnation={STREAM.incarnation}"),
        ("/stream", "vhost=/&name=payments"),
        ("/stream", "vhost=orders&name=/"),
    ],
)
@pytest.mark.usefixtures("archive")
def test_a_stream_that_is_not_there_is_a_problem_of_its_own(path: str, query: str) -> None:
    reply = call(path, query)
    assert reply.status == 404
    assert reply.headers["Content-Type"] == PROBLEM
    assert reply.body["type"] == "urn:coldstream:problem:stream-not-found"


@pytest.mark.parametrize("name", ["/", "%2F", "a?b&c=d#e", "+", "a+b c", "ü☃", "a,b,,c", ",", ";", "..", '"', "\n"])
def test_names_of_any_characters_are_taken_as_they_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ChunkArchive(StreamId(name, name, Incarnation("life_1763700000000000000")))
    archive.add(0, steady(5, 1))
    use(monkeypatch, archive)
    reply = ask(vhost=name, name=name, spec="first")
    assert reply.status == 200
    assert (reply.body["stream"]["vhost"], reply.body["stream"]["name"]) == (name, name)


@pytest.mark.usefixtures("archive")
def test_a_stream_is_described() -> None:
    reply = call("/stream", "vhost=%2F&name=orders")
    assert reply.status == 200
    assert reply.body["stream"]["incarnation"] == STREAM.incarnation
    assert (reply.body["first_offset"], reply.body["next_offset"]) == (0, 35)
    assert (reply.body["first_timestamp"], reply.body["last_timestamp"]) == (1000, 6000)
    assert (reply.body["fragments"], reply.body["chunks"], reply.body["messages"]) == (3, 5, 25)
    assert reply.body["gaps"] == [{"first_offset": 20, "next_offset": 30, "reason": None}]
    assert reply.body["gap_count"] == 1


def test_streams_are_listed_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    table = MemoryTable()
    for number in range(5):
        archive = ChunkArchive(StreamId("/", f"s{number}", Incarnation(f"__s{number}_1763700000000000000")))
        archive.table = table
        archive.add(0, steady(5, 1))
    use(monkeypatch, archive)
    names: list[str] = []
    cursor = None
    while True:
        reply = call("/streams", urlencode({"limit": 2} | ({"cursor": cursor} if cursor else {})))
        assert reply.status == 200
        names += [stream["name"] for stream in reply.body["streams"]]
        cursor = reply.body["cursor"]
        if cursor is None:
            break
    assert sorted(names) == [f"s{number}" for number in range(5)]
    assert len(call("/streams").body["streams"]) == 5
    assert call("/streams", "cursor=x").status == 400
    assert call("/streams", "limit=0").body["field"] == "limit"


@pytest.mark.usefixtures("archive")
def test_a_stage_before_the_path_is_no_part_of_it() -> None:
    assert call("/streams", stage="prod").status == 200


@pytest.mark.parametrize("path", ["/", "/range", "/ranges/", "/streams/x", "/%2e%2e"])
def test_an_unknown_path_is_a_problem_of_its_own(path: str) -> None:
    reply = call(path, "vhost=/")
    assert reply.status == 404
    assert reply.headers["Content-Type"] == PROBLEM
    assert reply.body["type"] == "urn:coldstream:problem:route-not-found"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/streams", "/stream", "/super", "/ranges"])
def test_another_method_than_get_is_not_allowed(path: str, method: str) -> None:
    reply = call(path, "vhost=/&name=orders", method)
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET"
    assert reply.body["type"] == "urn:coldstream:problem:method-not-allowed"


@pytest.mark.parametrize(
    ("error", "status", "kind", "tells"),
    [
        (UnavailableError("secret endpoint timed out"), 503, "unavailable", False),
        (AccessDeniedError("role secret may not"), 500, "internal-error", False),
        (InvalidSettingError("COLDSTREAM_TABLE", "secret is not set"), 500, "internal-error", False),
        (ZeroDivisionError("secret"), 500, "internal-error", False),
        (CorruptionError("manifest item", 3, "sparse index of secret"), 500, "archive-corrupt", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_internal_failure_is_reported_without_its_secrets_and_logged_with_the_request(
    *,
    error: Exception,
    status: int,
    kind: str,
    tells: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> Resolver:
        raise error

    monkeypatch.setattr(resolving, "resolver", fail)
    logged: list[str] = []
    monkeypatch.setattr(resolving.logger, "error", lambda *args, **fields: logged.append(f"{args} {fields}"))
    reply = ask(spec="first")
    assert reply.status == status
    assert reply.headers["Content-Type"] == PROBLEM
    assert reply.body["type"] == f"urn:coldstream:problem:{kind}"
    assert ("secret" in json.dumps(reply.body)) is tells
    assert reply.body["instance"] == INSTANCE
    assert (reply.headers.get("Retry-After") == "1") is (status == 503)
    assert len(logged) == 1
    assert "secret" in logged[0]
    assert '"Failures":[1.0]' in capsys.readouterr().out


def test_the_openapi_document_is_valid_and_what_is_committed() -> None:
    document = resolver_api.openapi()
    validate(json.loads(document))
    assert (ROOT / "docs/openapi.json").read_text() == document, "run `make generate`"


def test_every_route_is_documented_with_its_problems() -> None:
    document = json.loads(resolver_api.openapi())
    operations = {path: methods["get"] for path, methods in document["paths"].items()}
    assert {operation["operationId"] for operation in operations.values()} == {
        "listStreams",
        "describeStream",
        "describeSuper",
        "resolveRanges",
    }
    for path, operation in operations.items():
        for status, response in operation["responses"].items():
            expected = {"200": {"application/json"}, "401": {"application/json"}, "429": {"application/json"}}
            by_both = {"application/json"} if path == "/streams" else {PROBLEM, "application/json"}
            assert set(response["content"]) == (expected | {"403": by_both}).get(status, {PROBLEM})
        assert set(operation["responses"]) >= {"200", "400", "401", "403", "429", "500", "503"}
        assert ("404" in operation["responses"]) is (path != "/streams")
        assert all(parameter["description"] for parameter in operation["parameters"])


def test_it_works_on_dynamodb_and_s3_as_the_environment_says(
    table_name: str, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = ChunkArchive()
    archive.table = DynamoTable(table_name)
    archive.objects = s3_objects
    archive.add(0, steady(5, 1000, 2000))
    archive.add(10, steady(5, 3000, 4000))
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setattr(resolving, "resolver", resolving.resolver.__wrapped__)
    for asked in ({"offset": 12}, {"timestamp": 2500}):
        reply = ask(**asked)
        assert reply.status == 200
        (part,) = reply.body["ranges"]
        got = urllib3.request("GET", part["url"], headers={"Range": part["range_header"]})
        assert got.status == 206
        chunks = [chunk.header.chunk_id for chunk in iter_chunks(got.data, source=part["key"])]
        assert chunks == [10, 15]
        assert reply.body["tail"] == {"next_offset": 20}


READER = "arn:aws:sts::123456789012:assumed-role/reader/session"


def called(authorizer: dict[str, Any] | None, path: str, query: str) -> tuple[Reply, list[dict[str, Any]]]:
    """Call as somebody; return the reply and the audit lines."""
    asked = event(path, query)
    if authorizer is not None:
        asked["requestContext"]["authorizer"] = authorizer
    lines: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit.logger, "info", lambda message, **fields: lines.append({"message": message, **fields}))
        answer = app.lambda_handler(asked, Context())
    return Reply(answer["statusCode"], json.loads(answer["body"]), answer["headers"]), lines


def bearer(scope: str) -> dict[str, Any]:
    return {"jwt": {"claims": {"sub": "alice", "iss": "https://issuer.example", "scope": scope}, "scopes": None}}


ORDERS = bearer("openid coldstream.read:%2F/ord*")


@pytest.fixture(params=["plain", "powertools"])
def _on_both_roads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "powertools":
        monkeypatch.setattr(app, "plain_query", lambda _: None)


@pytest.mark.usefixtures("archive", "_on_both_roads")
@pytest.mark.parametrize("name", ["orders", "payments"])
def test_a_stream_that_may_not_be_read_is_denied_whether_or_not_it_exists(name: str) -> None:
    told = []
    for incarnation in ("", f"&incarnation={STREAM.incarnation}", "&incarnation=__no_1"):
        for path, start in (("/ranges", "&spec=first"), ("/stream", "")):
            query = f"vhost=/&name={name}{incarnation}{start}"
            reply, (line,) = called(bearer("coldstream.read:%2F/invoices"), path, query)
            assert reply.status == line["status"] == 403
            assert reply.headers["Content-Type"] == PROBLEM
            assert reply.body["type"] == "urn:coldstream:problem:not-permitted"
            assert (line["principal"], line["stream"]) == ("alice", name)
            told.append(reply.body["detail"].replace(name, "NAME"))
    assert set(told) == {"reading stream 'NAME' in vhost '/' is not permitted"}


@pytest.mark.usefixtures("archive", "_on_both_roads")
def test_a_cursor_grants_nothing() -> None:
    cursor = ask(spec="first", max_ranges=1).body["cursor"]
    reply, _ = called(bearer("coldstream.read:%2F/invoices"), "/ranges", f"vhost=/&name=orders&cursor={cursor}")
    assert reply.status == 403
    reply, _ = called(bearer("coldstream.read:%2F/invoices"), "/ranges", f"vhost=/&name=invoices&cursor={cursor}")
    assert reply.status == 404


@pytest.mark.usefixtures("archive", "_on_both_roads")
def test_a_lookup_is_audited_with_its_answer_and_no_url() -> None:
    reply, (line,) = called(ORDERS, "/ranges", "vhost=/&name=orders&offset=7")
    assert reply.status == 200
    assert line == {
        "message": "lookup",
        "operation": "ranges",
        "proof": "token",
        "principal": "alice",
        "issuer": "https://issuer.example",
        "request_id": "JKJaXmPLvHcESHA=",
        "vhost": "/",
        "stream": "orders",
        "incarnation": STREAM.incarnation,
        "start": "offset 7",
        "status": 200,
        "outcome": "ranges",
        "ranges": 2,
        "first_offset": 5,
        "next_offset": 20,
        "gap": [20, 30],
        "tail": None,
    }


@pytest.mark.usefixtures("archive", "_on_both_roads")
@pytest.mark.parametrize(
    ("query", "status"),
    [("name=payments&spec=first", 404), ("name=orders&cursor=x", 400), ("name=&spec=first", 400)],
)
def test_a_lookup_that_fails_is_audited_too(query: str, status: int) -> None:
    reply, (line,) = called({"iam": {"userArn": READER}}, "/ranges", f"vhost=/&{query}")
    assert reply.status == line["status"] == status
    assert (line["proof"], line["principal"]) == ("iam", READER)


def test_an_internal_failure_is_audited_too(monkeypatch: pytest.MonkeyPatch, archive: ChunkArchive) -> None:
    def fail(*_: object) -> None:
        raise UnavailableError("no answer")

    monkeypatch.setattr(archive.table, "log_from_offset", fail)
    reply, (line,) = called(ORDERS, "/ranges", "vhost=/&name=orders&spec=first")
    assert reply.status == line["status"] == 503


@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize("level", ["INFO", "ERROR", "CRITICAL"])
def test_the_audit_line_is_json_at_any_level_of_log(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    program = """
import sys
from coldstream.runtime.audit import audited
caller = {"iam": {"userArn": "a\\nb"}}
with audited({"requestContext": {"requestId": "r", "authorizer": caller}}, "ranges", stream="x\\ny"):
    pass
"""
    path = str(ROOT / "layers/coldstream/python")
    environment = {"PATH": os.defpath, "PYTHONPATH": path, "POWERTOOLS_LOG_LEVEL": level, "LOG_LEVEL": level}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert (told["service"], told["message"], told["principal"]) == ("coldstream-audit", "lookup", "a\nb")
    assert told["stream"] == "x\ny"
    assert "location" not in told


def several(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> MemoryTable:
    table = MemoryTable()
    for number, name in enumerate(names):
        one = ChunkArchive(StreamId("/", name, Incarnation(f"__s_{1763700000000000000 + number}")))
        one.table = table
        one.add(0, steady(5, 1))
    use(monkeypatch, one)
    return table


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_only_streams_that_may_be_read_are_listed_and_cursors_name_no_others(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{kind}-{number}" for kind in ("secret", "open") for number in range(6)]
    several(monkeypatch, names)
    monkeypatch.setattr("coldstream.resolve.resolver.MAX_STREAMS", 100)
    listed: list[str] = []
    known = {registry_key("/", name, Incarnation("")) for name in names if name.startswith("open")}
    cursor: str | None = ""
    while cursor is not None:
        query = urlencode({"limit": limit} | ({"cursor": cursor} if cursor else {}))
        reply, (line,) = called(bearer("coldstream.read:%2F/open-*"), "/streams", query)
        assert reply.status == 200
        page = [stream["name"] for stream in reply.body["streams"]]
        assert (line["operation"], line["streams"]) == ("list", len(page))
        assert len(page) <= limit
        listed += page
        cursor = reply.body["cursor"]
        assert cursor is None or any(cursor.startswith(key) for key in known)
    assert sorted(listed) == [f"open-{number}" for number in range(6)]
    reply, _ = called(bearer("openid"), "/streams", "")
    assert reply.body == {"streams": [], "cursor": None}
    reply, _ = called(None, "/streams", "")
    assert len(reply.body["streams"]) == len(names)
