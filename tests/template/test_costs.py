"""The costs of max-lag in docs/deploy.md match the requests counted of an agent and the upload function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions
from coldstream.agent.recovery_log import RecoveryLog
from coldstream.archive.borders import QuietSpans
from coldstream.archive.upload import Uploader
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.stage import find_rolled
from coldstream.live.address import BrokerAddress
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_document
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.span_object import LoggedRun
from coldstream.store.table import DynamoTable
from coldstream.units import MIB, Offset, TimestampMs
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
def table(dynamodb_local: DynamoDBLocal, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A table in AWS's own emulator, which counts units."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local.url)
    parameters = table_parameters(load_document(TEMPLATE)["Resources"]["Table"])
    client = boto3.session.Session().client("dynamodb")
    client.create_table(TableName="costs", **parameters)
    yield "costs"
    client.delete_table(TableName="costs")


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


class LoggedStream:
    """An archiver with something new each turn, as far as the recovery log knows one."""

    def __init__(self, stream: StreamId, chunk: bytes) -> None:
        self.stream = stream
        self.log = self
        self.progress = self
        self.archived_to = Offset(0)
        self._chunk = chunk
        self._reached = 0

    async def unlogged(self) -> LoggedRun:
        self._reached += 10
        return LoggedRun(self.stream, Offset(self._reached - 10), Offset(self._reached), self._chunk)

    async def read(self, run: LoggedRun) -> LoggedRun:
        return run

    def logged(self, run: LoggedRun) -> None:
        pass


async def test_a_span_of_the_recovery_log_asks_for_what_the_table_says(
    table: str, s3_objects: S3Objects, tmp_path: Path
) -> None:
    write_stream(tmp_path, chunks=250)
    names = {"COLDSTREAM_BUCKET": s3_objects.bucket, "COLDSTREAM_TABLE": table, "COLDSTREAM_EVENT_BUS": BUS}
    archive = ArchiveClient.from_environment(names, BandwidthLimit(None), 1)
    objects = S3Objects(s3_objects.bucket)
    uploader = Uploader(DynamoTable(table), objects, Keys(), 64 * MIB, now=objects.clock)
    streams = [replace(STREAM, incarnation=Incarnation(f"{STREAM.incarnation}{number}")) for number in range(5)]
    archivers = {one.incarnation: LoggedStream(one, b"a chunk") for one in streams}
    at = 0
    log = RecoveryLog(
        archive,
        archivers,  # type: ignore[arg-type]
        AgentMetrics(),
        lambda: "node-1",
        every_ms=20_000,
        quiet=QuietSpans(MIB, 3_600_000),
        now=lambda: TimestampMs(at),
    )
    said = {what: number(requests) for what, requests, *_ in rows("recovery log")}
    try:
        await log.turn()
        with counted() as counts:
            for _ in range(SPANS):
                at += 20_000
                await log.turn()
        assert counts == {"PutObject": SPANS * said["a span: PUT of an object"]}
        for stream in streams:
            slice_ = find_rolled(tmp_path)[0]
            uploader.upload(await archive.stage(slice_, stream, 20_000))
            archivers[stream.incarnation].archived_to = slice_.next_offset
        for one in archivers.values():
            one.unlogged = nothing  # type: ignore[method-assign]
        at += 3 * 3_600_000
        with counted() as counts:
            await log.turn()
        assert len(log) == 0
        assert counts["GetObject"] == (SPANS + 1) * said["a span: GET of its header before it is deleted"]
        hours = len(streams) * said["a stream's hour: read units, whether the manifest covers it"]
        assert counts["read units"] <= hours
        assert counts.keys() == {"GetObject", "DeleteObjects", "Query", "read units"}
        with counted() as counts:
            assert await archive.is_taken(streams[0])
        # Asked twice an hour.
        assert 2 * counts["read units"] <= said["a stream's hour: read units, whether the archive takes it"]
    finally:
        archive.stop()


async def nothing() -> None:
    """Return what is new of a stream: nothing."""


def test_the_sum_of_quiet_streams_is_right() -> None:
    *parts, (_, total) = rows("a thousand quiet streams, 30 days")
    *_, (_, _, _, of_a_slice) = rows("a span")
    put, get, covered, taken = (number(cost) for *_, cost in rows("recovery log"))
    for what, dollars in parts:
        each = {"slices": number(of_a_slice), "hours": covered + taken, "objects": put + get}
        kind = next(name for name in each if f" {name}" in what)
        assert number(what) * each[kind] / 1e6 == pytest.approx(number(dollars), abs=0.006), what
    assert sum(number(dollars) for _, dollars in parts) == pytest.approx(number(total), abs=0.005)
    for line in rows("recovery log"):
        assert number(line[1]) * price(line[2]) == pytest.approx(number(line[3]), abs=0.006)
