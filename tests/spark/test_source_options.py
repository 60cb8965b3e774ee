"""Options: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark.options import SourceOptions

from coldstream.errors import InvalidInputError
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, AtTimestamp

PLACE = {"table": "t", "bucket": "b"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse(PLACE | {"stream": "orders"} | options, {})


def test_without_more_it_is_all_that_is_archived() -> None:
    found = parse()
    assert (found.start.of("orders"), found.end.of("orders")) == (FIRST, NEXT)
    assert (found.min_partitions, found.fail_on_data_loss, found.push_filters) == (1, True, False)


def test_names_of_options_come_in_any_case() -> None:
    assert parse(STARTINGOFFSETS="5").start.of("orders") == AtOffset(5)


def test_bounds_come_in_several_forms() -> None:
    assert parse(startingTimestamp="1970-01-01T00:00:01Z").start.of("orders") == AtTimestamp(1000)
    assert parse(startingOffsets="timestamp", startingTimestamp="7").start.of("orders") == AtTimestamp(7)
    by_name = parse(endingOffsets='{"orders": 5}').end
    assert (by_name.of("orders"), by_name.of("another")) == (AtOffset(5), NEXT)


def test_table_and_bucket_are_the_drivers_unless_given() -> None:
    variables = {
        "COLDSTREAM_TABLE": "theirs",
        "COLDSTREAM_BUCKET": "too",
        "AWS_ENDPOINT_URL_S3": "http://s3",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    location = SourceOptions.parse({"stream": "orders", "bucket": "mine"}, variables).location
    assert (location.table, location.bucket) == ("theirs", "mine")
    assert dict(location.variables) == {"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_DEFAULT_REGION": "eu-central-1"}
    named = {"COLDSTREAM_TABLE": "t", "COLDSTREAM_BUCKET": "b", "AWS_REGION": "us-east-2"}
    location = SourceOptions.parse({"stream": "orders"}, named).location
    assert dict(location.variables) == {"AWS_DEFAULT_REGION": "us-east-2"}
    location = SourceOptions.parse({"stream": "orders"}, variables | {"AWS_REGION": "us-east-2"}).location
    assert dict(location.variables)["AWS_DEFAULT_REGION"] == "eu-central-1"
    location = SourceOptions.parse(
        {"stream": "orders", "endpoint": "http://all", "region": "us-east-1"}, variables
    ).location
    assert dict(location.variables) == {"AWS_ENDPOINT_URL": "http://all", "AWS_DEFAULT_REGION": "us-east-1"}


def test_conditions_are_taken_for_one_scan_and_who_asks_for_it_says_so() -> None:
    assert parse(pushFilters="one-scan").push_filters
    with pytest.raises(InvalidInputError, match=r"'true' is neither false nor one-scan: .* scanned more than once"):
        parse(pushFilters="true")


@pytest.mark.parametrize(
    "options",
    [
        {"startOffset": "5"},
        {"password": "x"},
        {"path": "s3://b"},
        {"streams": "a"},
        {"stream": ""},
        {"stream": "x" * 256},
        {"stream": "\ud800"},
        {"vhost": ""},
        {"incarnation": "../other"},
        {"columns": "offset,body"},
        {"columns": "offset,offset"},
        {"columns": ""},
        {"startingOffsets": "-1"},
        {"startingOffsets": "first"},
        {"startingOffsets": "²"},
        {"startingOffsets": str(1 << 64)},
        {"startingOffsets": "9" * 5000},
        {"startingOffsets": '{"another": 5}'},
        {"startingOffsets": '{"orders": true}'},
        {"startingOffsets": '{"orders": 5'},
        {"startingOffsets": "offset"},
        {"startingOffsets": "5", "startingOffset": "5"},
        {"startingOffset": "5", "startingTimestamp": "5"},
        {"startingTimestamp": "yesterday"},
        {"endingOffsets": "earliest"},
        {"startingOffsets": "6", "endingOffsets": "5"},
        {"startingTimestamp": "6", "endingTimestamp": "5"},
        {"minPartitions": "0"},
        {"maxRecordsPerTrigger": "many"},
        {"maxBytesPerTrigger": "-5"},
        {"failOnDataLoss": "no"},
        {"table": ""},
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        parse(**options)


@pytest.mark.parametrize(
    "options",
    [{}, {"streams": "a,a"}, {"streams": "[5]"}, {"streamPattern": "("}, {"superStream": ""}, {"streams": "a,,b"}],
)
def test_what_names_no_streams_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        SourceOptions.parse(PLACE | options, {})


def test_an_incarnation_is_of_one_stream() -> None:
    with pytest.raises(InvalidInputError, match="one stream"):
        SourceOptions.parse(PLACE | {"streamPattern": ".*", "incarnation": "x"}, {})


def test_the_name_of_a_super_stream_is_no_pattern() -> None:
    assert SourceOptions.parse(PLACE | {"superStream": "a.b"}, {}).pattern == r"a\.b-[0-9]+"
