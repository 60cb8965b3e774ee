"""/super of the resolver function, as API Gateway calls it."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from coldstream.manifest.access import Grant
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.resolver import Resolver
from coldstream.resolve.shard_api import ShardMapBody
from coldstream.resolve.super_api import SuperAnswerBody
from coldstream.runtime import resolving
from functions.resolver import app
from tests.functions.test_resolver import PROBLEM, Context, Reply, call, event
from tests.support.archive import NOW, ChunkArchive
from tests.support.written_maps import NAME, a_map, write


def ask(name: str = NAME, vhost: str = "/") -> Reply:
    return call("/super", urlencode({"vhost": vhost, "name": name}, quote_via=quote, safe=""))


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> ChunkArchive:
    archive = ChunkArchive()
    resolver = Resolver(archive.table, archive.objects, url_expiry_s=60, now=lambda: NOW)
    monkeypatch.setattr(resolving, "resolver", lambda: resolver)
    return archive


def test_a_map_is_answered_whole(archive: ChunkArchive) -> None:
    write(archive.table, a_map())
    reply = ask()
    assert reply.status == 200
    assert ShardMapBody.model_validate(reply.body).value() == a_map()
    assert reply.body["versions"][1]["partitions"] == [0, 1, 2, 3]
    assert reply.body["lineage"][1] == {"child": 3, "parent": 1, "child_from": 0, "seal": None}


def test_a_name_without_a_map_is_a_problem_of_its_own(archive: ChunkArchive) -> None:
    write(archive.table, a_map())
    for reply in (ask("orders"), ask(vhost="other")):
        assert reply.status == 404
        assert reply.headers["Content-Type"] == PROBLEM
        assert reply.body["type"] == "urn:coldstream:problem:super-not-found"


@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize(
    "query", ["name=orders", "vhost=/", "vhost=/&name=", "vhost=/&name=" + 256 * "x", "vhost=/&name=a&x=1"]
)
def test_a_query_without_names_means_nothing(query: str) -> None:
    assert call("/super", query).status == 400


def ranges(**parameters: object) -> Reply:
    given = {"vhost": "/", "super": NAME} | parameters
    return call("/ranges", urlencode(given, quote_via=quote, safe=""))


def test_ranges_of_a_sharded_stream_follow_its_partitions(archive: ChunkArchive) -> None:
    write(archive.table, a_map())
    reply = ranges(spec="first", order="arrival", max_ranges=100)
    assert reply.status == 200
    assert [one["name"] for one in reply.body["partitions"]] == ["a", "b", "c", "d"]
    assert reply.body["partitions"][0]["tail"] == {"next_offset": 0}
    assert reply.body["cursor"] is None
    answer = SuperAnswerBody.model_validate(reply.body).value()
    assert str(answer.position) == reply.body["position"]
    again = ranges(position=reply.body["position"], max_ranges=100)
    assert again.body["position"] == reply.body["position"]
    assert again.body["partitions"][2]["waits_for"] == {"child": 2, "parent": 0, "child_from": 0, "seal": (1 << 64) - 1}


@pytest.mark.usefixtures("archive")
def test_ranges_of_an_unknown_name_are_a_problem_of_their_own() -> None:
    reply = ranges(spec="first")
    assert (reply.status, reply.body["type"]) == (404, "urn:coldstream:problem:super-not-found")


@pytest.mark.parametrize(
    ("field", "parameters"),
    [
        ("offset", {"offset": 5}),
        ("incarnation", {"spec": "first", "incarnation": "x"}),
        ("name", {"spec": "first", "name": "orders"}),
        ("position", {"position": "v1,0:1,0:2"}),
        ("position", {"position": "v9"}),
        ("position", {"position": "v1,99:1"}),
        ("position", {"position": "v1" + ",1:1" * 2_500_000}),
        ("position", {"position": "v1", "spec": "first"}),
        ("spec", {}),
        ("order", {"spec": "first", "order": "time"}),
        ("cursor", {"cursor": "AgAA"}),
    ],
)
def test_a_start_that_means_nothing_in_a_sharded_stream_is_refused(
    archive: ChunkArchive, field: str, parameters: dict[str, object]
) -> None:
    write(archive.table, a_map())
    reply = ranges(**parameters)
    assert (reply.status, reply.body["field"]) == (400, field)


@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize(
    "query", ["vhost=/&spec=first", "vhost=/&name=a&position=v1", "vhost=/&name=a&spec=first&order=key"]
)
def test_a_plain_stream_has_no_position(query: str) -> None:
    assert call("/ranges", query).status == 400


@pytest.mark.parametrize(("granted", "status"), [("%2F/*", 200), ("%2F/[ab]", 403), ("%2F/orders*", 403)])
def test_every_partition_must_be_readable_by_its_own_name(
    archive: ChunkArchive, monkeypatch: pytest.MonkeyPatch, granted: str, status: int
) -> None:
    write(archive.table, a_map())
    permissions = Permissions(archive.table)
    resolver = Resolver(archive.table, archive.objects, url_expiry_s=60, permissions=permissions, now=lambda: NOW)
    monkeypatch.setattr(resolving, "resolver", lambda: resolver)
    archive.table.put_grant(Grant("arn:aws:iam::123456789012:user/eve", granted, NOW))
    request = event("/ranges", urlencode({"vhost": "/", "super": NAME, "spec": "first"}, quote_via=quote, safe=""))
    request["requestContext"]["authorizer"] = {"iam": {"userArn": "arn:aws:iam::123456789012:user/eve"}}
    assert app.lambda_handler(request, Context())["statusCode"] == status
    request = event("/super", urlencode({"vhost": "/", "name": "unknown"}))
    request["requestContext"]["authorizer"] = {"iam": {"userArn": "arn:aws:iam::123456789012:user/eve"}}
    assert app.lambda_handler(request, Context())["statusCode"] == (404 if granted == "%2F/*" else 403)
