"""AWS's clock: heard once, kept by the monotonic clock, and never mixed with the host's."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import formatdate
from urllib.parse import parse_qsl, urlsplit

import botocore.auth
import pytest

from coldstream.errors import UnavailableError
from coldstream.store import answers, clock, fast_reads, presigning
from coldstream.store.clock import AwsClock, HeardTime
from coldstream.store.environment import AwsEnvironment
from coldstream.store.fast_reads import FastObjects
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange, TimestampMs
from tests.store.samples import ORDERS
from tests.store.wire import Wire, answer, foreign_answer, s3_error

DATE = "Tue, 14 Jul 2026 03:33:20 GMT"
DATE_MS = TimestampMs(1_784_000_000_000)
HOUR_MS = 3600 * 1000


class Monotonic:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 5_000_000

    def __call__(self) -> int:
        return self.now_ms * 1_000_000


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


@pytest.fixture
def heard(monotonic: Monotonic, monkeypatch: pytest.MonkeyPatch) -> HeardTime:
    """What this process has heard: nothing yet."""
    heard = HeardTime(monotonic)
    for module in (answers, clock, fast_reads, presigning):
        monkeypatch.setattr(module, "HEARD", heard)
    monkeypatch.setattr(AwsClock.__init__, "__defaults__", (heard,))
    return heard


@pytest.fixture(params=[-HOUR_MS, HOUR_MS], ids=["an hour behind", "an hour ahead"])
def wrong_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose clock is an hour off."""
    right = time.time
    off_s = request.param / 1000
    monkeypatch.setattr(time, "time", lambda: right() + off_s)
    monkeypatch.setattr(time, "time_ns", lambda: int((right() + off_s) * 1e9))
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(right() + off_s, UTC))


def date_of(timestamp: TimestampMs) -> str:
    return formatdate(timestamp / 1000, usegmt=True)


@pytest.mark.parametrize(
    "date",
    [DATE, "Tuesday, 14-Jul-26 03:33:20 GMT", "Tue, 14 Jul 2026 05:33:20 +0200", "Tue, 14 Jul 2026 03:33:20 -0000"],
)
def test_dates_are_read_in_their_own_zone(heard: HeardTime, date: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        heard.hear(date)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert heard.now() == DATE_MS


@pytest.mark.parametrize("date", [None, "", "yesterday", "Tue, 99 Jul 2026 03:33:20 GMT"])
def test_what_is_no_date_teaches_nothing(heard: HeardTime, date: str | None) -> None:
    heard.hear(date)
    assert heard.now() is None
    heard.hear(DATE)
    heard.hear(date)
    assert heard.now() == DATE_MS


def test_the_time_goes_on_by_the_monotonic_clock(heard: HeardTime, monotonic: Monotonic) -> None:
    heard.hear(DATE)
    monotonic.now_ms += 12_345
    assert heard.now() == DATE_MS + 12_345


def test_answers_that_were_on_their_way_do_not_set_the_time_back(heard: HeardTime, monotonic: Monotonic) -> None:
    heard.hear(DATE)
    monotonic.now_ms += 1999
    heard.hear(DATE)
    assert heard.now() == DATE_MS + 1999


def test_a_later_date_sets_the_time_forward(heard: HeardTime, monotonic: Monotonic) -> None:
    heard.hear(DATE)
    monotonic.now_ms += 300  # a machine that stood still for an hour, and did not count it
    heard.hear(date_of(TimestampMs(DATE_MS + HOUR_MS)))
    assert heard.now() == DATE_MS + HOUR_MS


def test_a_date_that_was_wrong_is_put_right_by_the_next(heard: HeardTime) -> None:
    heard.hear(date_of(TimestampMs(DATE_MS + HOUR_MS)))
    heard.hear(DATE)
    assert heard.now() == DATE_MS


def test_aws_is_asked_once(heard: HeardTime) -> None:
    asked: list[None] = []

    def ask() -> None:
        asked.append(None)
        heard.hear(DATE)

    now = AwsClock(ask, heard)
    assert (now(), now(), len(asked)) == (DATE_MS, DATE_MS, 1)


def test_without_any_date_there_is_no_time(heard: HeardTime) -> None:
    with pytest.raises(UnavailableError, match="without a date"):
        AwsClock(lambda: None, heard)()


def test_a_bucket_says_the_time_even_in_a_refusal(aws: str, heard: HeardTime) -> None:
    objects = S3Objects("bucket")
    refused = s3_error(403, "AccessDenied")
    refused.headers["Date"] = DATE
    with Wire(objects._client, refused) as seen:
        assert objects.clock() == DATE_MS
    assert [request.method for request in seen.sent] == ["HEAD"]


def test_no_stranger_says_the_time(aws: str, heard: HeardTime, delays: list[float]) -> None:
    objects = S3Objects("bucket")
    strangers = [foreign_answer(403, Date=DATE) for _ in range(9)]
    with Wire(objects._client, *strangers), pytest.raises(UnavailableError):
        objects.clock()
    assert heard.now() is None


def test_every_answer_of_s3_and_dynamodb_is_heard(
    heard: HeardTime, s3_objects: S3Objects, dynamo_table: DynamoTable, fast_table: DynamoTable
) -> None:
    for call in (
        lambda: s3_objects.info("key"),
        *(lambda t=t: t.head(ORDERS.incarnation) for t in (dynamo_table, fast_table)),
    ):
        heard._offset_ms = None
        call()
        now = heard.now()
        assert now is not None
        assert abs(now - time.time() * 1000) < 60_000


@pytest.mark.usefixtures("wrong_host")
def test_a_url_is_signed_by_awss_clock_whatever_the_hosts_is(aws: str, heard: HeardTime) -> None:
    heard.hear(DATE)
    environment = AwsEnvironment("eu-central-1", "id", "secret", None)
    for objects in (S3Objects("bucket"), FastObjects("bucket", "http://127.0.0.1:9/bucket", environment)):
        query = dict(parse_qsl(urlsplit(objects.presign_get("key", ByteRange(0, 1), expires_s=60)).query))
        assert query["X-Amz-Date"] == "20260714T033320Z"
        assert "/20260714/" in query["X-Amz-Credential"]


@pytest.mark.usefixtures("wrong_host")
def test_a_bucket_is_asked_before_the_first_url_is_signed(aws: str, heard: HeardTime) -> None:
    objects = S3Objects("bucket")
    with Wire(objects._client, answer(200, Date=DATE)) as seen:
        urls = [objects.presign_get("key", ByteRange(0, 1), expires_s=60) for _ in range(2)]
    assert ["X-Amz-Date=20260714T033320Z" in url for url in urls] == [True, True]
    assert len(seen.sent) == 1


@pytest.mark.usefixtures("wrong_host")
def test_the_clock_does_not_follow_the_hosts(heard: HeardTime) -> None:
    heard.hear(DATE)
    assert AwsClock(lambda: None, heard)() == DATE_MS


def test_the_clock_of_an_archive_is_that_of_its_bucket() -> None:
    objects = MemoryObjects(clock=lambda: DATE_MS)
    assert objects.clock() == DATE_MS
    objects.put("key", b"data")
    info = objects.info("key")
    assert info is not None
    assert info.last_modified == DATE_MS
