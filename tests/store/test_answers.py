"""What is no whole answer of AWS's is never believed: the call is repeated, and fails with a type in the end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from zlib import crc32

import pytest
from botocore.awsrequest import AWSResponse
from urllib3.exceptions import ProtocolError

from coldstream.errors import BadCrcError, InvalidSettingError, OutcomeUnknownError, UnavailableError
from coldstream.ingest.bus import EventBridgeBus
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.commit import Neighbourhood, plan_commit, plan_missing
from coldstream.manifest.entry import Head, Quarantine
from coldstream.store.bucket import base64_of
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ObjectInfo, UploadedPart
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange, Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, commit, entry
from tests.store.wire import Wire, answer, foreign_answer
from tests.support.faults import Faults, FaultyAws

LIFE = ORDERS.incarnation
PAGE = b"<html><body>Please sign in.</body></html>"
EMPTY = b"{}"

pytestmark = pytest.mark.usefixtures("delays")


def cut(body: bytes, status: int = 200, **headers: str) -> AWSResponse:
    return answer(status, body[: len(body) // 2], Content_Length=str(len(body)), **headers)


JSON: dict[str, Callable[[], AWSResponse]] = {
    "cut": lambda: cut(b'{"Item": {"stream": {"S": "x"}}}'),
    "cut to nothing": lambda: answer(200, Content_Length="2"),
    "nothing": lambda: answer(200),
    "cut without a length": lambda: answer(200, b'{"Item": {'),
    "of another checksum": lambda: answer(200, EMPTY, x_amz_crc32=str(crc32(EMPTY) ^ 1)),
    "of no checksum that is one": lambda: answer(200, EMPTY, x_amz_crc32="x"),
    "a list": lambda: answer(200, b"[]"),
    "no JSON": lambda: answer(200, b"\xff\xfe"),
    "a proxy's page": lambda: foreign_answer(200, PAGE, Content_Type="text/html"),
    "a proxy's JSON": lambda: foreign_answer(200, EMPTY),
    "a proxy's refusal": lambda: foreign_answer(403, PAGE),
    "a refusal that is cut": lambda: cut(b'{"__type": "x#ResourceNotFoundException", "message": "not there"}', 400),
    "a redirection that is cut": lambda: cut(PAGE, 302),
}

READS: dict[str, Callable[[DynamoTable], object]] = {
    "head": lambda table: table.head(LIFE),
    "gap": lambda table: table.gap(LIFE, Offset(10)),
    "quarantine": lambda table: table.quarantine(LIFE, Offset(10), Offset(20)),
    "log_from_offset": lambda table: table.log_from_offset(LIFE, Offset(0), 2),
    "log_from_timestamp": lambda table: table.log_from_timestamp(LIFE, TimestampMs(0), 2),
    "log_before": lambda table: table.log_before(LIFE, Offset(50), 2),
    "gaps": lambda table: table.gaps(LIFE, 1),
    "gaps_before": lambda table: table.gaps_before(LIFE, Offset(50), 1),
    "log_end": lambda table: table.log_end(LIFE, 2),
    "log_at_once": lambda table: table.log_at_once(LIFE, [Offset(10), Offset(30)]),
    "items_at_once": lambda table: table.items_at_once(LIFE, ["log#head"]),
    "missing": lambda table: list(table.missing(LIFE)),
    "missing_before": lambda table: table.missing_before(LIFE, Quarantine, Offset(15), 2),
    "missing_after": lambda table: table.missing_after(LIFE, Quarantine, Offset(5), 2),
    "journal": lambda table: list(table.journal(LIFE)),
    "incarnation_of": lambda table: table.incarnation_of("/", "orders"),
    "streams": lambda table: table.streams(None, 1),
    "grants": lambda table: table.grants(),
    "bound_cluster": lambda table: table.bound_cluster("/", "orders"),
}


def wire(table: DynamoTable, *script: Any) -> Wire:
    return Wire(table._connection().client, *script)


@pytest.fixture(scope="module")
def table(create_table: Callable[[], str]) -> DynamoTable:
    """A table with something for every read."""
    table = DynamoTable(create_table())
    for first in (0, 20, 30):
        commit(table, entry(first, first + 10))
    change = plan_missing(
        table.head(LIFE) or Head(ORDERS), Quarantine(Offset(10), Offset(20), "bad", NOW, "x", "etag"), [], []
    )
    assert change is not None
    table.apply(change)
    table.put_grant(Grant("arn:aws:iam::123456789012:role/reader", "%2F/orders", NOW))
    table.bind_cluster("/", "orders", Cluster("eu"))
    return table


@pytest.fixture(scope="module")
def spent_table(create_table: Callable[[], str]) -> DynamoTable:
    """A table for tests that always fail: soon its client repeats no more, as the SDK has a budget for that."""
    return DynamoTable(create_table())


def test_a_call_is_repeated_within_its_bound(dynamo_table: DynamoTable) -> None:
    with wire(dynamo_table, *[JSON["cut"]() for _ in range(9)]) as seen, pytest.raises(UnavailableError):
        dynamo_table.head(LIFE)
    assert len(seen.sent) == 4


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("broken", JSON.values(), ids=JSON)
def test_a_read_of_the_manifest_believes_no_broken_answer(
    spent_table: DynamoTable, read: Callable[[DynamoTable], object], broken: Callable[[], AWSResponse]
) -> None:
    with wire(spent_table, *[broken() for _ in range(9)]), pytest.raises(UnavailableError) as caught:
        read(spent_table)
    assert type(caught.value) is UnavailableError


REPEATED = [(name, "cut") for name in READS] + [("head", name) for name in JSON if name != "cut"]


@pytest.mark.parametrize(("name", "kind"), REPEATED)
def test_a_read_of_the_manifest_is_repeated_after_a_broken_answer(table: DynamoTable, name: str, kind: str) -> None:
    read, broken = READS[name], JSON[kind]
    whole = read(table)
    assert whole
    with wire(table, broken()) as seen:
        assert read(table) == whole
    assert len(seen.sent) == 2


def test_a_query_that_is_answered_without_items_is_refused(table: DynamoTable, spent_table: DynamoTable) -> None:
    nothing = [answer(200, EMPTY) for _ in range(9)]
    with wire(spent_table, *nothing), pytest.raises(UnavailableError, match="Items"):
        spent_table.gaps(LIFE, 1)
    with wire(table, nothing[-1]):
        assert table.gaps(LIFE, 1)


def test_an_answer_that_is_whole_says_that_there_is_nothing(table: DynamoTable) -> None:
    for nothing in (answer(200, EMPTY), answer(200, EMPTY, Content_Length="2", x_amz_crc32=str(crc32(EMPTY)))):
        with wire(table, nothing):
            assert table.head(LIFE) is None


@pytest.mark.parametrize("broken", JSON.values(), ids=JSON)
def test_a_change_whose_answer_is_broken_may_have_been_made(
    dynamo_table: DynamoTable, broken: Callable[[], AWSResponse]
) -> None:
    change = plan_commit(Neighbourhood(Head(ORDERS)), entry(0, 10), NOW)
    with wire(dynamo_table, *[broken() for _ in range(9)]) as seen, pytest.raises(OutcomeUnknownError):
        dynamo_table.apply(change)
    assert len({body["ClientRequestToken"] for body in seen.bodies}) == 1
    with wire(dynamo_table, broken()):
        dynamo_table.apply(change)
    assert dynamo_table.head(LIFE) == change.head


def test_a_client_that_is_made_anew_is_as_strict(table_name: str) -> None:
    table = DynamoTable(table_name)
    first = table._connection().client
    first._request_signer._credentials = None  # PynamoDB then makes another
    second = table._connection().client
    assert second is not first
    with Wire(second, *[JSON["cut"]() for _ in range(9)]), pytest.raises(UnavailableError):
        table.head(LIFE)


@pytest.mark.parametrize("broken", [*JSON.values(), lambda: answer(200, EMPTY)], ids=[*JSON, "without a count"])
def test_an_event_whose_answer_is_broken_was_not_taken(aws: str, broken: Callable[[], AWSResponse]) -> None:
    bus = EventBridgeBus("default")
    with Wire(bus._client, *[broken() for _ in range(9)]) as seen, pytest.raises(UnavailableError):
        bus.put(source="x", detail_type="y", detail="{}")
    assert len(seen.sent) == 4
    with Wire(bus._client, broken()) as seen:
        bus.put(source="x", detail_type="y", detail="{}")
    assert len(seen.sent) == 2


LIST = b"<ListPartsResult><IsTruncated>false</IsTruncated></ListPartsResult>"

XML: dict[str, Callable[[], AWSResponse]] = {
    "cut": lambda: cut(LIST),
    "cut to nothing": lambda: answer(200, Content_Length=str(len(LIST))),
    "cut without a length": lambda: answer(200, LIST[:30]),
    "something else": lambda: answer(200, b"<Nothing/>"),
    "a proxy's page": lambda: foreign_answer(200, PAGE),
    "a proxy's page for nothing there": lambda: foreign_answer(404, PAGE),
    "a proxy's precondition": lambda: foreign_answer(412),
    "a proxy's success": lambda: foreign_answer(200),
    "a refusal that is cut": lambda: cut(b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>", 404),
}

CALLS: dict[str, Callable[[S3Objects], object]] = {
    "uploads": lambda objects: objects.uploads("key"),
    "create_upload": lambda objects: objects.create_upload("key"),
    "parts": lambda objects: objects.parts("key", "id"),
    "keys": lambda objects: list(objects.keys("key")),
    "versions": lambda objects: list(objects.versions("key")),
    "put": lambda objects: objects.put("key", b"data"),
    "put_part": lambda objects: objects.put_part("key", "id", 1, b"data", crc32=crc32(b"data")),
    "complete_upload": lambda objects: objects.complete_upload("key", "id", [UploadedPart(1, 1, 1, '"e"')], crc32=1),
    "copy": lambda objects: objects.copy("key", "other", if_match='"e"'),
    "put_new": lambda objects: objects.put_new("key", io.BytesIO(b"data"), size_bytes=4, crc32=crc32(b"data")),
}


@pytest.fixture(scope="module")
def objects(aws: str) -> S3Objects:
    """A bucket for tests that never reach it."""
    return S3Objects("bucket")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("broken", XML.values(), ids=XML)
def test_a_call_of_s3_believes_no_broken_answer(
    objects: S3Objects, call: Callable[[S3Objects], object], broken: Callable[[], AWSResponse]
) -> None:
    with Wire(objects._client, *[broken() for _ in range(9)]), pytest.raises(UnavailableError) as caught:
        call(objects)
    assert type(caught.value) is UnavailableError


@pytest.mark.parametrize("name", XML)
def test_a_listing_is_repeated_after_a_broken_answer(aws: str, name: str) -> None:
    objects = S3Objects("bucket")
    with Wire(objects._client, XML[name](), answer(200, LIST)) as seen:
        assert objects.parts("key", "id") == ()
    assert len(seen.sent) == 2


@pytest.mark.parametrize("status", [200, 204, 302, 404, 412])
@pytest.mark.parametrize(
    "call",
    [
        lambda objects: objects.info("key"),
        lambda objects: objects.delete("key"),
        lambda objects: objects.abort_upload("key", "id"),
        lambda objects: objects.get_range("key", ByteRange(0, 10)),
        lambda objects: objects.get_whole("key", 10),
    ],
    ids=["info", "delete", "abort_upload", "get_range", "get_whole"],
)
def test_a_stranger_cannot_say_that_nothing_is_there_or_all_is_done(
    objects: S3Objects, call: Callable[[S3Objects], object], status: int
) -> None:
    with Wire(objects._client, *[foreign_answer(status) for _ in range(9)]), pytest.raises(UnavailableError):
        call(objects)


MODIFIED = "Tue, 14 Jul 2026 03:33:20 GMT"


def test_a_head_has_the_length_of_a_body_that_is_not_sent(objects: S3Objects) -> None:
    with Wire(objects._client, answer(200, Content_Length="1000", ETag='"e"', Last_Modified=MODIFIED)) as seen:
        assert objects.info("key") == ObjectInfo(1000, '"e"', None, TimestampMs(1_784_000_000_000))
    assert len(seen.sent) == 1


def test_a_head_without_an_etag_is_refused(objects: S3Objects) -> None:
    with Wire(objects._client, *[answer(200, Content_Length="9") for _ in range(9)]), pytest.raises(UnavailableError):
        objects.info("key")


def part_of_object(body: bytes, content_range: str) -> AWSResponse:
    return answer(206, body, Content_Range=content_range, ETag='"e"')


@pytest.mark.parametrize(
    ("data", "content_range"),
    [
        (b"01234", "bytes 0-9/100"),  # cut, and no length said so
        (b"0123456789a", "bytes 0-9/100"),
        (b"01234", "bytes 0-4/100"),
        (b"0123456789", "bytes 10-19/100"),
        (b"0123456789", "bytes 0-9/*"),
        (b"0123456789", "anything"),
        (b"", "bytes 0-9/100"),
    ],
)
def test_a_range_is_all_that_was_asked_for_or_it_is_read_again(
    objects: S3Objects, data: bytes, content_range: str
) -> None:
    broken = [part_of_object(data, content_range) for _ in range(9)]
    with Wire(objects._client, *broken) as seen, pytest.raises(UnavailableError):
        objects.get_range("key", ByteRange(0, 10))
    assert len(seen.sent) == 3
    with Wire(objects._client, broken[-1], part_of_object(b"0123456789", "bytes 0-9/100")):
        assert objects.get_range("key", ByteRange(0, 10)).data == b"0123456789"


def test_a_range_ends_where_the_object_does(objects: S3Objects) -> None:
    with Wire(objects._client, part_of_object(b"56789", "bytes 5-9/10")):
        assert objects.get_range("key", ByteRange(5, 50)).data == b"56789"


def test_a_get_without_an_etag_is_refused(objects: S3Objects) -> None:
    script = [answer(206, b"0", Content_Range="bytes 0-0/1") for _ in range(9)]
    with Wire(objects._client, *script), pytest.raises(UnavailableError, match="ETag"):
        objects.get_range("key", ByteRange(0, 1))


def whole_object(body: bytes, of: bytes = b"0123456789") -> AWSResponse:
    return answer(200, body, Content_Length=str(len(body)), x_amz_checksum_crc32=base64_of(crc32(of)), ETag='"e"')


def test_an_object_that_is_read_whole_is_of_its_checksum_or_it_is_read_again(objects: S3Objects) -> None:
    with Wire(objects._client, whole_object(b"0123456788"), whole_object(b"0123456789")) as seen:
        assert objects.get_whole("key", 10) == b"0123456789"
    assert len(seen.sent) == 2
    assert {request.headers["x-amz-checksum-mode"] for request in seen.sent} == {b"ENABLED"}
    assert not [request for request in seen.sent if "Range" in request.headers], "S3 tells no checksum of a range"
    for wrong in (b"0123456788", b"012345678"):
        script = [whole_object(wrong) for _ in range(9)]
        with Wire(objects._client, *script) as seen, pytest.raises(BadCrcError, match="key") as caught:
            objects.get_whole("key", 10)
        assert (caught.value.source, len(seen.sent)) == ("key", 3)


def test_a_store_that_tells_no_checksum_is_believed(objects: S3Objects) -> None:
    with Wire(objects._client, answer(200, b"0123", Content_Length="4", ETag='"e"')):
        assert objects.get_whole("key", 10) == b"0123"


def test_an_object_that_is_read_whole_has_a_length(objects: S3Objects) -> None:
    script = [answer(200, b"0123", ETag='"e"') for _ in range(9)]
    with Wire(objects._client, *script) as seen, pytest.raises(UnavailableError, match="length"):
        objects.get_whole("key", 10)
    assert len(seen.sent) == 3


class _Broken(io.BytesIO):
    """A body in chunks that ends within one: the connection says so, not its length."""

    def read(self, size: int | None = -1) -> bytes:
        raise ProtocolError("the connection ended within a chunk")


def test_a_refusal_whose_body_breaks_off_is_asked_for_again(objects: S3Objects) -> None:
    def refusal() -> AWSResponse:
        broken = answer(404)
        broken.raw._fp = _Broken()
        return broken

    with Wire(objects._client, *[refusal() for _ in range(9)]) as seen, pytest.raises(UnavailableError):
        objects.get_range("key", ByteRange(0, 1))
    assert len(seen.sent) == 3


def test_a_missing_table_is_still_told(table: DynamoTable) -> None:
    content = json.dumps({"__type": "com.amazonaws#ResourceNotFoundException", "message": "not there"}).encode()
    with wire(table, answer(400, content, Content_Length=str(len(content)))), pytest.raises(InvalidSettingError):
        table.head(LIFE)


@pytest.fixture
def faulty_aws(table: DynamoTable, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyAws]:
    """The emulated DynamoDB behind a network that cuts answers."""
    with FaultyAws(table._connection().client.meta.endpoint_url, seed=4) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", faulty.url)
        yield faulty


def test_answers_cut_by_the_network_are_never_taken_for_nothing(table: DynamoTable, faulty_aws: FaultyAws) -> None:
    head = table.head(LIFE)
    behind = DynamoTable(table._item.Meta.table_name)
    faulty_aws.faults = Faults(drop_rate=0.7)
    told = 0
    for _ in range(30):
        with suppress(UnavailableError):  # and no other: not one of a head that is not there
            assert behind.head(LIFE) == head
            told += 1
    assert told > 0
    assert faulty_aws.counts["dropped"] > 0
