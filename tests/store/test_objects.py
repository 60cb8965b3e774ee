"""What is S3's own about `S3Objects`: requests, presigned URLs, failures."""

from __future__ import annotations

import hashlib
import hmac
import io
import os
import re
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import Request, urlopen
from zlib import crc32

import pytest
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from coldstream.errors import (
    AccessDeniedError,
    BadCrcError,
    ColdstreamError,
    ConflictError,
    InvalidSettingError,
    ObjectExistsError,
    ReplacedError,
    UnavailableError,
)
from coldstream.store.clock import HEARD
from coldstream.store.large_reads import BLOCK_BYTES
from coldstream.store.objects import S3Objects
from coldstream.store.ports import UploadedPart
from coldstream.units import ByteRange
from tests.store.wire import Wire, answer, s3_error

DATA = b"0123456789" * 100_000
URL = "http://aws.test"


def put(objects: S3Objects, key: str = "key", body: io.BytesIO | None = None) -> None:
    objects.put_new(key, body or io.BytesIO(DATA), size_bytes=len(DATA), crc32=crc32(DATA))


def wire(objects: S3Objects, *script: Any) -> Wire:
    return Wire(objects._client, *script)


def headers(seen: Wire) -> dict[str, str]:
    """The headers of the only request, as they were sent."""
    (request,) = seen.sent
    return {
        name.lower(): value if isinstance(value, str) else value.decode() for name, value in request.headers.items()
    }


@pytest.fixture(scope="module")
def shared_objects(moto_endpoint: str) -> S3Objects:
    """A bucket for tests that never reach it."""
    return S3Objects("bucket")


class CountedBody(io.BytesIO):
    """A body that knows how it was read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read_bytes = 0
        self.largest_read = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        self.largest_read = max(self.largest_read, len(data))
        return data


def test_a_put_has_its_condition_and_checksum_and_no_hash_of_the_body(s3_objects: S3Objects) -> None:
    data = b"123456789"
    with wire(s3_objects) as seen:
        s3_objects.put_new("key", io.BytesIO(data), size_bytes=9, crc32=0xCBF43926)
    sent = headers(seen)
    assert sent["if-none-match"] == "*"
    assert sent["x-amz-checksum-crc32"] == "y/Q5Jg=="
    assert sent["content-length"] == "9"
    assert sent["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert not sent.keys() & {"content-md5", "transfer-encoding", "x-amz-trailer", "content-encoding"}
    signed = sent["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {"if-none-match", "x-amz-checksum-crc32", "content-length"} <= set(signed)


def test_a_body_is_read_once_and_in_pieces(s3_objects: S3Objects) -> None:
    # Not in the small pieces that the SDK asks for, each of which costs a call.
    data = bytes(3 * BLOCK_BYTES + 7)
    body = CountedBody(data)
    s3_objects.put_new("key", body, size_bytes=len(data), crc32=crc32(data))
    assert body.read_bytes == len(data)
    assert body.largest_read == BLOCK_BYTES


@pytest.mark.usefixtures("delays")
def test_a_put_that_is_repeated_sends_the_whole_body(s3_objects: S3Objects) -> None:
    with wire(s3_objects, s3_error(500, "InternalError"), s3_error(409, "ConditionalRequestConflict")) as seen:
        put(s3_objects)
    assert len(seen.sent) == 3
    assert s3_objects.get_range("key", ByteRange(0, 2 * len(DATA))).data == DATA


@pytest.mark.parametrize(
    ("failure", "error", "requests"),
    [
        (s3_error(412, "PreconditionFailed"), ObjectExistsError, 1),
        (s3_error(400, "BadDigest"), BadCrcError, 1),
        (s3_error(400, "IncompleteBody"), UnavailableError, 1),
        (s3_error(409, "ConditionalRequestConflict"), UnavailableError, 3),
        (s3_error(503, "SlowDown"), UnavailableError, 4),
        (ConnectionClosedError(endpoint_url=URL), UnavailableError, 4),
        (s3_error(403, "AccessDenied"), AccessDeniedError, 1),
        (s3_error(404, "NoSuchBucket"), InvalidSettingError, 1),
        (s3_error(400, "EntityTooLarge"), ColdstreamError, 1),
    ],
)
@pytest.mark.usefixtures("delays")
def test_a_failed_put_says_why(moto_endpoint: str, failure: Any, error: type[Exception], requests: int) -> None:
    objects = S3Objects("bucket")
    with wire(objects, *[failure] * 9) as seen, pytest.raises(error) as caught:
        put(objects)
    assert type(caught.value) is error
    assert len(seen.sent) == requests


def test_an_upload_is_of_one_checksum_of_the_whole(s3_objects: S3Objects) -> None:
    with wire(s3_objects) as seen:
        s3_objects.create_upload("key")
    sent = headers(seen)
    assert (sent["x-amz-checksum-algorithm"], sent["x-amz-checksum-type"]) == ("CRC32", "FULL_OBJECT")


def test_a_part_has_its_checksum_and_no_hash_of_the_body(s3_objects: S3Objects) -> None:
    upload_id = s3_objects.create_upload("key")
    with wire(s3_objects) as seen:
        part = s3_objects.put_part("key", upload_id, 3, b"123456789", crc32=0xCBF43926)
    sent = headers(seen)
    assert sent["x-amz-checksum-crc32"] == "y/Q5Jg=="
    assert sent["content-length"] == "9"
    assert sent["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert not sent.keys() & {"content-md5", "transfer-encoding", "x-amz-trailer", "content-encoding"}
    assert part == UploadedPart(3, 9, 0xCBF43926, '"25f9e794323b453885f5181f1b624d0b"')


def test_a_completion_has_its_condition_and_every_checksum(shared_objects: S3Objects) -> None:
    parts = [UploadedPart(1, 9, 0xCBF43926, '"one"'), UploadedPart(2, 1, None, '"two"')]
    done = answer(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
    with wire(shared_objects, done) as seen:
        shared_objects.complete_upload("key", "id", parts, crc32=0xCBF43926)
    sent = headers(seen)
    assert sent["if-none-match"] == "*"
    assert (sent["x-amz-checksum-crc32"], sent["x-amz-checksum-type"]) == ("y/Q5Jg==", "FULL_OBJECT")
    assert seen.sent[0].url.endswith("/bucket/key?uploadId=id")
    listed = re.findall(r"<(ETag|PartNumber|ChecksumCRC32)>(.*?)</", seen.sent[0].body.decode())
    assert sorted(listed[:3]) == [("ChecksumCRC32", "y/Q5Jg=="), ("ETag", '"one"'), ("PartNumber", "1")]
    assert sorted(listed[3:]) == [("ETag", '"two"'), ("PartNumber", "2")]


def parts_page(*numbers: int, following: int | None = None) -> Any:
    """A page of S3's list of parts."""
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{number}&quot;</ETag><Size>{number * 10}</Size>"
        "<ChecksumCRC32>y/Q5Jg==</ChecksumCRC32></Part>"
        for number in numbers
    )
    more = "" if following is None else f"<NextPartNumberMarker>{following}</NextPartNumberMarker>"
    is_truncated = "false" if following is None else "true"
    return answer(
        200, f"<ListPartsResult>{parts}{more}<IsTruncated>{is_truncated}</IsTruncated></ListPartsResult>".encode()
    )


def test_parts_are_listed_to_the_last_page_with_their_checksums(shared_objects: S3Objects) -> None:
    with wire(shared_objects, parts_page(1, 2, following=2), parts_page(3)) as seen:
        parts = shared_objects.parts("key", "id")
    assert parts == tuple(UploadedPart(number, number * 10, 0xCBF43926, f'"{number}"') for number in (1, 2, 3))
    assert "part-number-marker=2" in seen.sent[1].url


def uploads_page(*uploads: tuple[str, str], following: str | None = None) -> Any:
    """A page of S3's list of uploads, keys and ids."""
    began = "<Initiated>2026-07-14T03:33:20.000Z</Initiated>"
    listed = "".join(f"<Upload><Key>{key}</Key><UploadId>{one}</UploadId>{began}</Upload>" for key, one in uploads)
    more = "<IsTruncated>false</IsTruncated>"
    if following is not None:
        more = f"<IsTruncated>true</IsTruncated><NextKeyMarker>key</NextKeyMarker><NextUploadIdMarker>{following}"
        more += "</NextUploadIdMarker>"
    return answer(200, f"<ListMultipartUploadsResult>{listed}{more}</ListMultipartUploadsResult>".encode())


def test_uploads_are_listed_to_the_last_page(shared_objects: S3Objects) -> None:
    pages = uploads_page(("key", "one"), following="one"), uploads_page(("key", "two"), ("key.json", "three"))
    with wire(shared_objects, *pages) as seen:
        assert shared_objects.uploads("key") == ("one", "two")
    assert "prefix=key" in seen.sent[0].url
    assert "upload-id-marker=one" in seen.sent[1].url


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (s3_error(404, "NoSuchUpload"), ConflictError),
        (s3_error(400, "BadDigest"), BadCrcError),
        (s3_error(503, "SlowDown"), UnavailableError),
        (s3_error(403, "AccessDenied"), AccessDeniedError),
        (s3_error(404, "NoSuchBucket"), InvalidSettingError),
        (ConnectionClosedError(endpoint_url=URL), UnavailableError),
    ],
)
@pytest.mark.usefixtures("delays")
def test_a_failed_part_says_why(shared_objects: S3Objects, failure: Any, error: type[Exception]) -> None:
    with wire(shared_objects, *[failure] * 9), pytest.raises(error) as caught:
        shared_objects.put_part("key", "id", 1, b"data", crc32=crc32(b"data"))
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (s3_error(412, "PreconditionFailed"), ObjectExistsError),
        (s3_error(404, "NoSuchUpload"), ConflictError),
        (s3_error(400, "InvalidPart"), ConflictError),
        (s3_error(400, "BadDigest"), BadCrcError),
        (s3_error(409, "ConditionalRequestConflict"), UnavailableError),
        (s3_error(500, "InternalError"), UnavailableError),
        (s3_error(400, "EntityTooSmall"), ColdstreamError),
    ],
)
@pytest.mark.usefixtures("delays")
def test_a_failed_completion_says_why(shared_objects: S3Objects, failure: Any, error: type[Exception]) -> None:
    with wire(shared_objects, *[failure] * 9), pytest.raises(error) as caught:
        shared_objects.complete_upload("key", "id", [UploadedPart(1, 1, 1, '"e"')], crc32=1)
    assert type(caught.value) is error


@pytest.mark.usefixtures("delays")
def test_a_completion_that_fails_after_it_began_to_answer_is_sent_again(shared_objects: S3Objects) -> None:
    failed = [s3_error(200, "InternalError") for _ in range(9)]
    with wire(shared_objects, *failed) as seen, pytest.raises(UnavailableError):
        shared_objects.complete_upload("key", "id", [UploadedPart(1, 1, 1, '"e"')], crc32=1)
    assert len(seen.sent) == 4


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (s3_error(500, "InternalError"), UnavailableError),
        (s3_error(503, "SlowDown"), UnavailableError),
        (s3_error(412, "PreconditionFailed"), ReplacedError),
        (s3_error(403, "AccessDenied"), AccessDeniedError),
        (s3_error(400, "ExpiredToken"), AccessDeniedError),
        (s3_error(404, "NoSuchBucket"), InvalidSettingError),
        (s3_error(400, "InvalidArgument"), ColdstreamError),
        (EndpointConnectionError(endpoint_url=URL), UnavailableError),
        (ReadTimeoutError(endpoint_url=URL, error="read timed out"), UnavailableError),
        (NoCredentialsError(), AccessDeniedError),
    ],
)
@pytest.mark.usefixtures("delays")
def test_a_failed_get_says_why(shared_objects: S3Objects, failure: Any, error: type[Exception]) -> None:
    with wire(shared_objects, *[failure] * 9), pytest.raises(error) as caught:
        shared_objects.get_range("key", ByteRange(0, 1), if_match='"etag"')
    assert type(caught.value) is error


def test_a_forbidden_head_is_not_taken_for_a_missing_object(shared_objects: S3Objects) -> None:
    with wire(shared_objects, answer(403)), pytest.raises(AccessDeniedError):
        shared_objects.info("key")


def broken_off() -> Any:
    return answer(206, DATA[:5], Content_Range="bytes 0-9/1000000", Content_Length="10", ETag='"etag"')


@pytest.mark.usefixtures("delays")
def test_a_body_that_breaks_off_is_read_again(s3_objects: S3Objects) -> None:
    put(s3_objects)
    with wire(s3_objects, broken_off()) as seen:
        assert s3_objects.get_range("key", ByteRange(0, 10)).data == DATA[:10]
    assert [request.headers["Range"] for request in seen.sent] == [b"bytes=0-9"] * 2


@pytest.mark.usefixtures("delays")
def test_a_body_that_always_breaks_off_is_given_up(shared_objects: S3Objects) -> None:
    with wire(shared_objects, *[broken_off() for _ in range(9)]) as seen, pytest.raises(UnavailableError):
        shared_objects.get_range("key", ByteRange(0, 10))
    assert len(seen.sent) == 3


def test_a_store_that_answers_with_the_whole_object_is_refused(shared_objects: S3Objects) -> None:
    whole = answer(200, DATA, Content_Length=str(len(DATA)), ETag='"etag"')
    with wire(shared_objects, whole), pytest.raises(ColdstreamError, match="ranges"):
        shared_objects.get_range("key", ByteRange(0, 10))


def test_a_copy_is_sent_with_its_condition(shared_objects: S3Objects) -> None:
    with wire(shared_objects, s3_error(412, "PreconditionFailed")) as seen, pytest.raises(ReplacedError):
        shared_objects.copy("a b", "c", if_match='"etag"')
    sent = headers(seen)
    assert sent["x-amz-copy-source-if-match"] == '"etag"'
    assert sent["x-amz-copy-source"] == "bucket/a%20b"


def test_a_checksum_of_checksums_is_none_of_the_object(shared_objects: S3Objects) -> None:
    modified = "Tue, 14 Jul 2026 03:33:20 GMT"
    checksum = {"x_amz_checksum_crc32": "QAeDrg==-2"}
    head = answer(200, Content_Length="0", ETag='"etag-2"', Last_Modified=modified, **checksum)
    with wire(shared_objects, head):
        info = shared_objects.info("key")
    assert info is not None
    assert info.crc32 is None


def test_a_presigned_url_fetches_exactly_its_range(s3_objects: S3Objects) -> None:
    put(s3_objects, "a b/ü+c")
    with wire(s3_objects) as seen:
        url = s3_objects.presign_get("a b/ü+c", ByteRange(10, 25), expires_s=60)
    assert seen.sent == []
    with urlopen(Request(url, headers={"Range": "bytes=10-24"})) as got:
        assert got.status == 206
        assert got.read() == DATA[10:25]


def test_a_presigned_url_is_good_for_its_range_and_no_other(s3_objects: S3Objects) -> None:
    # moto checks no signatures, so the test does it, as S3 would.
    url = s3_objects.presign_get("key", ByteRange(10, 25), expires_s=900)
    query = dict(parse_qsl(urlsplit(url).query))
    assert query["X-Amz-Expires"] == "900"
    assert query["X-Amz-SignedHeaders"] == "host;range"
    assert query["X-Amz-Signature"] == signature(url, "bytes=10-24", secret="test")
    assert query["X-Amz-Signature"] != signature(url, "bytes=10-25", secret="test")


def test_a_presigned_url_names_the_endpoint_of_its_own_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    HEARD.hear(formatdate())
    url = S3Objects("bucket").presign_get("key", ByteRange(0, 1), expires_s=60)
    assert url.startswith("https://bucket.s3.eu-central-1.amazonaws.com/key?")


def test_without_credentials_nothing_is_presigned(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with pytest.raises(AccessDeniedError):
        S3Objects("bucket").presign_get("key", ByteRange(0, 1), expires_s=60)


def signature(url: str, range_header: str, *, secret: str) -> str:
    """Sign a GET as AWS's documents say (Signature Version 4, query parameters), for a `Range` header of our choice."""
    parts = urlsplit(url)
    query = sorted((name, value) for name, value in parse_qsl(parts.query) if name != "X-Amz-Signature")
    values = dict(query)
    canonical = "\n".join(
        [
            "GET",
            parts.path,
            "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query),
            f"host:{parts.netloc}",
            f"range:{range_header}",
            "",
            values["X-Amz-SignedHeaders"],
            "UNSIGNED-PAYLOAD",
        ]
    )
    scope = values["X-Amz-Credential"].partition("/")[2]
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", values["X-Amz-Date"], scope, hashed])
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


@pytest.mark.parametrize("etag", ["its own", '"another"'])
def test_where_a_store_knows_no_condition_of_a_delete_the_etag_is_asked_for_first(
    s3_objects: S3Objects, etag: str
) -> None:
    put(s3_objects)
    there = s3_objects.info("key")
    assert there is not None
    with wire(s3_objects, s3_error(501, "NotImplemented")) as seen:
        if etag == "its own":
            s3_objects.delete("key", if_match=there.etag)
        else:
            with pytest.raises(ReplacedError):
                s3_objects.delete("key", if_match=etag)
    assert [request.method for request in seen.sent] == ["DELETE", "HEAD", "DELETE"][: 3 if etag == "its own" else 2]
    assert (s3_objects.info("key") is None) == (etag == "its own")
