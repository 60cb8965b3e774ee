"""The routes of streams, through the handler: what is shown of the archive, and to whom."""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from coldstream.api.job_rights import JobRights
from coldstream.api.message_bodies import bounded
from coldstream.browse.body_view import BodyKind, BodyView
from coldstream.browse.message_view import EntryPlace, MessageView, SectionRow, SectionView
from coldstream.manifest.access import Grant
from coldstream.resolve.permissions import Permissions
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.api.test_job_routes import is_problem
from tests.support.asked_api import NOW, ApiReply, AskedApi, audit_lines, bearer, signed_by
from tests.support.hostile_text import hostile_streams
from tests.support.previewing import at_hour

READER = "arn:aws:iam::123456789012:user/rita"
PATHS = ("/v1/stream", "/v1/stream/timeline", "/v1/stream/messages", "/v1/stream/search", "/v1/stream/search/forecast")


def ask(api: AskedApi, path: str, **parameters: object) -> ApiReply:
    given = {"where": "size > 0"} if "search" in path else {}
    query = urlencode({"vhost": "/", "name": "orders"} | given | parameters, quote_via=quote, safe="")
    return api("GET", f"{path}?{query}")


def names(reply: ApiReply) -> list[str]:
    assert reply.status == 200
    return [row["name"] for row in reply.body["streams"]]


@pytest.fixture
def orders(api: AskedApi) -> AskedApi:
    api.archive.add("orders", 12, without=(4,))
    return api


def test_streams_are_searched_sorted_and_paged(api: AskedApi) -> None:
    for number in range(5):
        api.archive.add(f"orders-{number}", number + 1)
    api.archive.add("bills", 9)
    api.archive.add("orders-x", 1, vhost="other")
    listed = lambda **parameters: names(api("GET", f"/v1/streams?{urlencode(parameters)}"))  # noqa: E731
    assert listed(search="ORDERS", vhost="/", sort="messages", descending="true", limit=2) == ["orders-4", "orders-3"]
    assert listed(search="orders", vhost="/", sort="messages", descending="true", limit=2, page=2) == [
        "orders-2",
        "orders-1",
    ]
    page = api("GET", "/v1/streams?search=orders-&sort=name&limit=4").body
    assert (page["pages"], page["totals"]["streams"], page["totals"]["messages"]) == (2, 6, 160)
    following = api("GET", f"/v1/streams?search=orders-&sort=name&limit=4&cursor={quote(page['next_cursor'])}")
    assert names(following) == ["orders-4", "orders-x"]


def test_a_stream_is_listed_with_what_its_head_tells(orders: AskedApi) -> None:
    (row,) = orders("GET", "/v1/streams").body["streams"]
    assert (row["messages"], row["fragments"], row["gaps"], row["first_offset"], row["tail"]) == (110, 11, 1, 0, 120)
    assert row["age_ms"] == NOW - at_hour(11.5)
    assert ask(orders, "/v1/stream").body == row


def test_only_troubled_streams_are_listed_if_that_is_asked(orders: AskedApi) -> None:
    orders.archive.add("bills", 3)
    assert names(orders("GET", "/v1/streams?troubled=true")) == ["orders"]


def test_a_timeline_covers_every_offset(orders: AskedApi) -> None:
    body = ask(orders, "/v1/stream/timeline").body
    assert [(span["kind"], span["first_offset"], span["next_offset"]) for span in body["coverage"]] == [
        ("archived", 0, 40),
        ("gap", 40, 50),
        ("archived", 50, 120),
    ]
    assert (body["next_offset"], body["is_cut"], body["losses"], body["holds"]) == (120, False, [], [])


def test_messages_are_shown_from_any_place(orders: AskedApi) -> None:
    offsets = lambda **parameters: [  # noqa: E731
        message["offset"] for message in ask(orders, "/v1/stream/messages", **parameters).body["messages"]
    ]
    assert offsets(limit=3) == [0, 1, 2]
    assert offsets(at="75", limit=3) == [75, 76, 77]
    assert offsets(at="last", limit=2) == [118, 119]
    assert offsets(at=f"timestamp:{at_hour(7)}", limit=1) == [70]
    assert offsets(at="before:60", limit=3) == [57, 58, 59]
    assert offsets(at="next") == []


def test_pages_follow_each_other_both_ways(orders: AskedApi) -> None:
    seen, at = [], "50"
    while True:
        page = ask(orders, "/v1/stream/messages", at=at, limit=7).body
        seen += [message["offset"] for message in page["messages"]]
        if page["next"] is None:
            break
        at = str(page["next"])
    assert seen == list(range(50, 120))
    assert page["tail"] == 120
    first = page["messages"][0]["offset"]
    assert page["previous"] == first
    back = ask(orders, "/v1/stream/messages", at=f"before:{first}", limit=3).body
    assert [message["offset"] for message in back["messages"]] == [first - 3, first - 2, first - 1]


def test_a_gap_is_shown_as_one(orders: AskedApi) -> None:
    body = ask(orders, "/v1/stream/messages", at="45").body
    assert (body["messages"], body["gap"]["first_offset"], body["gap"]["next_offset"]) == ([], 40, 50)
    assert body["next"] == 50


def test_a_body_that_is_no_text_comes_in_base64_and_cut(orders: AskedApi) -> None:
    (message,) = ask(orders, "/v1/stream/messages", at="119", limit=1, body_bytes=8).body["messages"]
    body = message["body"]
    assert (body["kind"], body["size_bytes"], body["is_cut"]) == ("raw", 20, True)
    shown = body["text"].encode() if body["text"] is not None else b64decode(body["base64"])
    assert shown == (119).to_bytes(8)


def test_a_search_goes_on_slice_by_slice(orders: AskedApi) -> None:
    found, cursor = [], None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        body = ask(orders, "/v1/stream/search", where="offset >= 35 and offset < 55", **more).body
        found += [message["offset"] for message in body["matches"]]
        if body["gap"] is not None:
            assert (body["ended_by"], body["gap"]["first_offset"], body["gap"]["next_offset"]) == ("gap", 40, 50)
        cursor = body["cursor"]
        if cursor is None:
            break
    assert found == [*range(35, 40), *range(50, 55)]
    assert (body["ended_by"], body["progress"]["share"], body["progress"]["gap_offsets"]) == ("end", 1.0, 10)


def test_a_search_is_told_before_it_begins(orders: AskedApi) -> None:
    body = ask(orders, "/v1/stream/search/forecast", start="50", end="100").body
    assert (body["first_offset"], body["next_offset"], body["is_bounded"]) == (50, 100, False)
    assert body["messages"] == pytest.approx(50, abs=10)


@pytest.mark.parametrize(
    ("path", "parameters", "field"),
    [
        ("/v1/stream/messages", {"at": "soon"}, "at"),
        ("/v1/stream/messages", {"at": "-1h"}, "at"),
        ("/v1/stream/messages", {"at": "before:x"}, "at"),
        ("/v1/stream/messages", {"at": "before:99999999999999999999"}, "at"),
        ("/v1/stream/messages", {"limit": "0"}, "limit"),
        ("/v1/stream/messages", {"bogus": "1"}, "bogus"),
        ("/v1/stream/search", {"where": "size >"}, "where"),
        ("/v1/stream/search", {"where": ""}, "where"),
        ("/v1/stream/search", {"start": "soon"}, "start"),
        ("/v1/stream/search", {"end": "last"}, "end"),
        ("/v1/stream/search", {"cursor": "x"}, "cursor"),
        ("/v1/stream/search", {"max_bytes": "0"}, "max_bytes"),
        ("/v1/stream/timeline", {"max_spans": "9"}, "max_spans"),
        ("/v1/stream", {"name": ""}, "name"),
        ("/v1/stream", {"incarnation": "a/b"}, "incarnation"),
        ("/v1/streams", {"sort": "size"}, "sort"),
        ("/v1/streams", {"page": "0"}, "page"),
        ("/v1/streams", {"cursor": "x"}, "cursor"),
    ],
)
def test_a_query_that_means_nothing_names_its_parameter(
    orders: AskedApi, path: str, parameters: dict[str, str], field: str
) -> None:
    given = {} if path == "/v1/streams" else {"vhost": "/", "name": "orders"}
    given |= {"where": "size > 0"} if path.endswith("search") else {}
    reply = orders("GET", f"{path}?{urlencode(given | parameters)}")
    assert is_problem(reply, 400, "invalid-query", field)


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_that_is_not_there_is_a_problem_of_its_own(orders: AskedApi, path: str) -> None:
    assert is_problem(ask(orders, path, name="bills"), 404, "stream-not-found")
    assert is_problem(ask(orders, path, incarnation="__orders_1"), 404, "stream-not-found")


@pytest.mark.parametrize("path", ["/v1/stream/messages", "/v1/stream/search"])
def test_messages_in_a_cold_class_are_told_to_be_restored(api: AskedApi, path: str) -> None:
    api.archive.add("orders", 2, cold=(0, 1))
    assert is_problem(ask(api, path), 409, "not-restored")


@pytest.mark.parametrize("stream", hostile_streams(), ids=lambda stream: stream.incarnation)
def test_a_stream_of_any_name_is_found_by_its_names(api: AskedApi, stream: Any) -> None:
    api.archive.add_as(stream, 1)
    for path in PATHS:
        reply = ask(api, path, vhost=stream.vhost, name=stream.name)
        assert reply.status == 200
    (row,) = api("GET", "/v1/streams").body["streams"]
    assert (row["vhost"], row["name"]) == (stream.vhost, stream.name)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("authorizer", [bearer("coldstream.read:%2F/bills"), bearer("coldstream.jobs:write"), None])
def test_a_stream_that_may_not_be_read_is_denied_whether_or_not_it_exists(
    orders: AskedApi, path: str, authorizer: dict[str, Any] | None
) -> None:
    orders.permit(Permissions(orders.archive.table), JobRights())
    orders.authorizer = authorizer
    told = [ask(orders, path, name=name).body["detail"].replace(name, "NAME") for name in ("orders", "none")]
    assert ask(orders, path).status == 403
    assert told[0] == told[1]


@pytest.mark.parametrize("path", PATHS)
def test_the_resolvers_scopes_and_grants_let_streams_be_read(orders: AskedApi, path: str) -> None:
    orders.permit(Permissions(orders.archive.table), JobRights())
    orders.archive.table.put_grant(Grant(READER, "%2F/ord*"))
    for authorizer in (bearer("coldstream.read:%2F/ord*"), signed_by(READER)):
        orders.authorizer = authorizer
        assert ask(orders, path).status == 200


def test_only_streams_that_may_be_read_are_listed_counted_and_paged(api: AskedApi) -> None:
    for number in range(6):
        api.archive.add(f"open-{number}", 1)
        api.archive.add(f"secret-{number}", 1)
    api.permit(Permissions(api.archive.table), JobRights())
    api.authorizer = bearer("coldstream.read:%2F/open-*")
    page = api("GET", "/v1/streams?limit=4")
    assert names(page) == [f"open-{number}" for number in range(4)]
    assert (page.body["totals"]["streams"], page.body["pages"]) == (6, 2)
    rest = api("GET", f"/v1/streams?limit=4&cursor={quote(page.body['next_cursor'])}")
    assert names(rest) == ["open-4", "open-5"]
    assert names(api("GET", "/v1/streams?search=secret")) == []
    api.authorizer = bearer("")
    assert names(api("GET", "/v1/streams")) == []
    api.authorizer = None
    assert api("GET", "/v1/streams").status == 403


def test_what_is_looked_at_is_audited_and_what_is_searched_for_is_not(
    orders: AskedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    with audit_lines(monkeypatch) as lines:
        ask(orders, "/v1/stream/messages", at="75", limit=2)
        ask(orders, "/v1/stream/search", where='body ~ "customer-4711"')
    shown, searched = lines
    assert shown.items() >= {"operation": "show-messages", "stream": "orders", "at": "75", "messages": 2}.items()
    assert (searched["operation"], searched["message"]) == ("search-messages", "lookup")
    assert "customer-4711" not in str(lines)


def shown_message(offset: int, text: str) -> MessageView:
    sections = (SectionView("application-properties", (SectionRow("k", "string", text, len(text)),), 1),)
    body = BodyView(BodyKind.DATA, b"\xff\x00", 2)
    return MessageView(
        Offset(offset), ChunkId(0), TimestampMs(0), EntryPlace(0), "key", 0, 100, sections, body, problem="half \ud800"
    )


def test_text_that_json_cannot_carry_is_escaped() -> None:
    (body,) = bounded([shown_message(1, "\ud800x")])
    assert body.sections[0].values[0].text == "\\ud800x"
    assert body.problem == "half \\ud800"
    assert (body.body.text, body.body.base64) == (None, "/wA=")  # type: ignore[union-attr]


def test_an_answer_ends_before_it_is_too_large_but_has_one_message() -> None:
    messages = [shown_message(offset, "x" * 1000) for offset in range(10)]
    assert [body.offset for body in bounded(messages, 5000)] == [0, 1, 2]
    assert [body.offset for body in bounded(messages, 1)] == [0]
