"""A range as it arrives: what it asks for again when a connection breaks, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

from coldstream.errors import ColdstreamError, ObjectNotFoundError, ReplacedError, UnavailableError
from coldstream.store.objects import S3Objects
from coldstream.store.range_stream import MAX_BREAKS
from coldstream.units import ByteRange
from tests.store.wire import Wire, answer

DATA = bytes(range(100))
PIECE = 10


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays before further attempts, none of which is waited for."""
    waits: list[float] = []
    monkeypatch.setattr("coldstream.retry.time.sleep", waits.append)
    return waits


@pytest.fixture(scope="module")
def objects() -> S3Objects:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            patch.setenv(name, value)
        return S3Objects("bucket")


def part(start: int, arriving: int | None = None, **changed: str) -> AWSResponse:
    """The answer for the bytes from `start` on, of which only so many arrive."""
    body = DATA[start:] if arriving is None else DATA[start : start + arriving]
    headers = {
        "Content_Range": f"bytes {start}-99/100",
        "Content_Length": str(100 - start),
        "ETag": '"etag"',
        **changed,
    }
    return answer(206, body, **headers)


def read_all(objects: S3Objects, piece: int = PIECE) -> bytes:
    stream = objects.open_range("key", ByteRange(0, 100))
    return b"".join(iter(lambda: stream.read(piece), b""))


def requests(seen: Wire) -> list[tuple[Any, Any]]:
    return [(request.headers["Range"], request.headers.get("If-Match")) for request in seen.sent]


def test_a_stream_goes_on_after_the_last_piece_that_arrived_and_only_of_the_same_object(
    objects: S3Objects, waits: list[float]
) -> None:
    with Wire(objects._client, part(0, 25), part(20, 31), part(50)) as seen:
        assert read_all(objects) == DATA
    assert requests(seen) == [
        (b"bytes=0-99", None),
        (b"bytes=20-99", b'"etag"'),
        (b"bytes=50-99", b'"etag"'),
    ]
    assert len(waits) == 2
    assert all(0 <= wait <= 0.2 for wait in waits)


def test_an_object_that_was_replaced_meanwhile_is_not_spliced_on(objects: S3Objects, waits: list[float]) -> None:
    refusal = answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
    with Wire(objects._client, part(0, 25), refusal), pytest.raises(ReplacedError):
        read_all(objects)


def test_an_object_that_is_gone_meanwhile_is_not_found(objects: S3Objects, waits: list[float]) -> None:
    refusal = answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
    with Wire(objects._client, part(0, 25), refusal), pytest.raises(ObjectNotFoundError):
        read_all(objects)


def test_attempts_that_bring_nothing_are_bounded(objects: S3Objects, waits: list[float]) -> None:
    script = [part(0, 25), *[part(20, 0) for _ in range(9)]]
    with Wire(objects._client, *script) as seen, pytest.raises(UnavailableError):
        read_all(objects)
    assert len(seen.sent) == 3
    assert len(waits) == 2


def test_breaks_are_bounded_though_each_attempt_brings_something(objects: S3Objects, waits: list[float]) -> None:
    pieces = [part(start, 1) for start in range(100)]
    stream_of_one = [*pieces[: MAX_BREAKS + 1], part(MAX_BREAKS + 1)]
    with Wire(objects._client, *stream_of_one) as seen, pytest.raises(UnavailableError):
        read_all(objects, piece=1)
    assert len(seen.sent) == MAX_BREAKS + 1


@pytest.mark.parametrize(
    "changed",
    [
        {"Content_Range": "bytes 10-99/100"},
        {"Content_Range": "bytes 0-99/*"},
        {"Content_Length": "99"},
        {"Content_Length": "101"},
    ],
)
def test_an_answer_about_another_range_is_asked_for_again(
    objects: S3Objects, waits: list[float], changed: dict[str, str]
) -> None:
    with Wire(objects._client, part(0, **changed), part(0)) as seen:
        assert read_all(objects) == DATA
    assert len(seen.sent) == 2


def test_a_store_that_answers_with_the_whole_object_is_refused(objects: S3Objects) -> None:
    whole = answer(200, DATA, Content_Length="100", ETag='"etag"')
    with Wire(objects._client, whole), pytest.raises(ColdstreamError, match="ranges"):
        read_all(objects)


def test_a_store_that_does_not_answer_any_more_is_unavailable(objects: S3Objects, waits: list[float]) -> None:
    silent = ReadTimeoutError(endpoint_url="http://127.0.0.1:9", error="read timed out")
    with Wire(objects._client, part(0, 25), *[silent for _ in range(19)]), pytest.raises(UnavailableError):
        read_all(objects)
