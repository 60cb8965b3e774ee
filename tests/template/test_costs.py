"""The costs of max-lag in docs/deploy.md match the requests counted of an agent and the upload function."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.options import AgentOptions
from coldstream.archive.upload import Uploader
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.stage import find_rolled
from coldstream.live.address import BrokerAddress
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_document
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import MIB
from tests.support.cloudformation import TEMPLATE, Stack
from tests.support.costs import PAGE, counted, number, price, rows
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.segments import STREAM, write_stream

BUS = "coldstream-of-the-costs"
BROKER = BrokerAddress.from_uri("rabbitmq-stream://user:secret@localhost")
DAY_S = 86_400
SPANS = 3
"""The segments that are counted, after a first one that registers the stream."""


def of_a_span() -> dict[str, float]:
    return {what: number(requests) for what, requests, *_ in rows("a span")[:-1]}


def test_the_sums_are_right() -> None:
    *parts, (_, _, _, total) = rows("a span")
    for what, requests, each, cost in parts:
        assert number(requests) * price(each) == pytest.approx(number(cost), abs=0.01), what
    assert sum(number(cost) for *_, cost in parts) == pytest.approx(number(total), abs=0.005)


def test_a_day_has_as_many_fragments_as_the_agent_makes_spans() -> None:
    cost = number(rows("a span")[-1][-1]) / 1e6
    *lags, _ = rows("`--max-lag`")
    assert lags[0][0] == "60s"
    for lag, span, fragments, a_day, a_month in lags:
        lag_s = number(lag[:-1]) * {"s": 1, "m": 60, "h": 3600}[lag[-1]]
        every_ms = AgentOptions(state=Path("/s"), data=Path("/d"), broker=BROKER, max_lag_s=lag_s).cut_every_ms
        assert every_ms is not None
        assert number(span) == every_ms / 1000
        assert number(fragments) == DAY_S * 1000 / every_ms
        assert number(a_day) == pytest.approx(number(fragments) * cost, abs=0.005)
        assert number(a_month) == pytest.approx(number(fragments) * cost * 1000 * 30, abs=0.5)


def test_the_text_says_what_the_table_does() -> None:
    _, span, fragments, *_ = rows("`--max-lag`")[0]
    assert f"{span} for `--max-lag 60s`" in PAGE
    assert f"86,400 / {span.removesuffix(' s')} = {fragments} a day" in PAGE


def test_as_many_metrics_are_paid_for_as_alarms_watch(stack: Stack) -> None:
    alarms = stack.of_type("AWS::CloudWatch::Alarm").values()
    watched = sum(sum("MetricStat" in metric for metric in alarm.get("Metrics", [])) or 1 for alarm in alarms)
    assert f"alarms on {watched} metrics" in PAGE


@pytest.fixture
def table(dynamodb_local: DynamoDBLocal, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table in AWS's own emulator, which counts units."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local.url)
    parameters = table_parameters(load_document(TEMPLATE)["Resources"]["Table"])
    boto3.session.Session().client("dynamodb").create_table(TableName="costs", **parameters)
    return "costs"


async def test_a_span_asks_for_what_the_table_says(table: str, s3_objects: S3Objects, tmp_path: Path) -> None:
    write_stream(tmp_path, chunks=250)
    boto3.session.Session().client("events").create_event_bus(Name=BUS)
    names = {"COLDSTREAM_BUCKET": s3_objects.bucket, "COLDSTREAM_TABLE": table, "COLDSTREAM_EVENT_BUS": BUS}
    archive = ArchiveClient.from_environment(names, BandwidthLimit(None), 1)
    objects = S3Objects(s3_objects.bucket)
    uploader = Uploader(DynamoTable(table), objects, Keys(), 64 * MIB, now=objects.clock)  # as the function does
    try:
        for slice_ in find_rolled(tmp_path)[:SPANS]:
            with counted() as counts:
                segment = await archive.stage(slice_, STREAM, 20_000)
                await archive.announce(segment)
                uploader.upload(segment)
                await archive.covered_to(STREAM.incarnation, slice_.first_offset, slice_.next_offset)
    finally:
        archive.stop()
    said = of_a_span()
    assert counts["PutObject"] == said["S3: PUT of the staged slice and of the fragment"]
    assert counts["HeadObject"] + counts["GetObject"] == said["S3: HEAD and GET of the staged slice"]
    assert counts["units by size"] == said["manifest: write units"]
    assert counts["read units"] <= said["manifest: read units; the agent looks until it is archived"]
    assert counts["PutEvents"] == said["EventBridge: an event"]
    free = {"DeleteObject", "write units", "units by size", "read units", "Query", "GetItem", "TransactWriteItems"}
    assert counts.keys() == free | {"PutObject", "HeadObject", "GetObject", "PutEvents"}
