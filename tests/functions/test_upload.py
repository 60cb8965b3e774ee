"""The upload function, as SQS calls it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coldstream.archive.envelope import DETAIL_TYPE, LOST_DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.appending import plan_create
from coldstream.manifest.cluster import DIRECT_CLUSTER
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.units import Offset, TimestampMs
from tests.support.forked_streams import write_history
from tests.support.segments import STREAM, write_stream

APP = Path(__file__).parents[2] / "functions/upload/app.py"


@dataclass
class Context:
    function_name = "upload"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:upload"
    aws_request_id = "52fdfc07-2182-154f-163f-5f0f9a621d72"

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


@pytest.fixture
def app(table_name: str, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_PREFIX", "here/")
    monkeypatch.setenv("COLDSTREAM_FRAGMENT_BYTES", "65536")
    spec = importlib.util.spec_from_file_location("upload_app", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.metrics.clear_metrics()  # one set for a process, in which other tests may have left some
    return module


@pytest.fixture
def segments(s3_objects: S3Objects, tmp_path: Path) -> list[SegmentRolled]:
    write_stream(tmp_path, chunks=250)
    rolled = find_rolled(tmp_path)
    damaged = bytearray(rolled[1].path.read_bytes())
    damaged[-1] ^= 0xFF
    rolled[1].path.write_bytes(damaged)
    return [stage(segment, STREAM, s3_objects, Keys("here/")) for segment in rolled]


def sqs_event(*bodies: str) -> dict[str, Any]:
    record = {
        "receiptHandle": "handle",
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "0"},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:upload",
        "awsRegion": "eu-central-1",
    }
    return {
        "Records": [{**record, "messageId": f"message-{number}", "body": body} for number, body in enumerate(bodies)]
    }


def envelope(event: SegmentRolled | SegmentLost) -> str:
    kind = DETAIL_TYPE if isinstance(event, SegmentRolled) else LOST_DETAIL_TYPE
    return json.dumps({"source": SOURCE, "detail-type": kind, "detail": json.loads(detail_of(event))})


def test_records_are_archived_one_by_one_and_the_failed_ones_named(app, segments, dynamo_table, capsys, caplog):
    event = sqs_event(envelope(segments[0]), "not JSON", envelope(segments[1]), envelope(segments[2]))
    answer = app.lambda_handler(event, Context())
    assert answer == {"batchItemFailures": [{"itemIdentifier": "message-1"}]}
    entries = dynamo_table.log_from_offset(STREAM.incarnation, Offset(0), 100).entries
    covered = {(entry.first_offset, entry.next_offset) for entry in entries}
    assert min(covered)[0] == 0
    assert max(covered)[1] == segments[2].next_offset
    head = dynamo_table.head(STREAM.incarnation)
    assert (head.quarantined, head.gaps) == (1, 1)
    failed = [record for record in caplog.records if record.message == "event not handled"]
    assert [record.message_id for record in failed] == ["message-1"]
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["SegmentsFailed"] == [1.0]
    assert metrics["SegmentsQuarantined"] == [0.0, 1.0, 0.0]
    assert metrics["FragmentsCommitted"][0] >= 1


@pytest.mark.parametrize("source", [SOURCE, f"{SOURCE}.eu", f"{SOURCE}.direct"])
def test_nobody_announces_segments_of_a_direct_stream(app, segments, dynamo_table, s3_objects, source):
    dynamo_table.bind_cluster(STREAM.vhost, STREAM.name, DIRECT_CLUSTER)
    dynamo_table.apply(plan_create(STREAM, TimestampMs(0), first=Offset(0), properties={}))
    lost = SegmentLost(STREAM, Offset(0), Offset(9), "the disk was full")
    bodies = []
    for event, life in product((segments[0], lost), (STREAM.incarnation, Incarnation("__orders_1763700000000000009"))):
        body = json.loads(envelope(event))
        body["source"] = source
        body["detail"]["stream"]["incarnation"] = life
        bodies.append(json.dumps(body))
    before = dynamo_table.head(STREAM.incarnation)
    answer = app.lambda_handler(sqs_event(*bodies), Context())
    assert [one["itemIdentifier"] for one in answer["batchItemFailures"]] == [f"message-{n}" for n in range(4)]
    assert dynamo_table.head(STREAM.incarnation) == before
    assert dynamo_table.incarnation_of(STREAM.vhost, STREAM.name) == STREAM.incarnation
    assert s3_objects.info(segments[0].staged_key) is not None


def test_a_loss_is_recorded_and_logged(app, segments, dynamo_table, capsys, caplog):
    one, _, other, *_ = segments
    lost = SegmentLost(STREAM, one.next_offset, other.first_offset, "the disk was full")
    answer = app.lambda_handler(sqs_event(envelope(one), envelope(lost), envelope(lost), envelope(other)), Context())
    assert answer == {"batchItemFailures": []}
    (gap,) = dynamo_table.gaps(STREAM.incarnation, 10)
    assert (gap.first_offset, gap.next_offset, gap.reason) == (lost.first_offset, lost.next_offset, lost.reason)
    assert dynamo_table.head(STREAM.incarnation).losses == 1
    told = [record for record in caplog.records if record.message == "loss recorded"]
    assert [(record.stream, record.first_offset) for record in told] == [("orders", lost.first_offset)] * 2
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["SegmentsLost"] == [1.0, 1.0]
    assert "SegmentsFailed" not in metrics


def test_a_second_history_rings_the_alarm_of_quarantines_and_a_second_copy_does_not(app, s3_objects, tmp_path, capsys):
    ours, theirs = write_history(tmp_path / "ours"), write_history(tmp_path / "theirs", forks_at=20)
    for directory, count in ((ours, 0.0), (ours, 0.0), (theirs, 1.0)):
        segment = stage(find_rolled(directory)[0], STREAM, s3_objects, Keys("here/"))
        assert app.lambda_handler(sqs_event(envelope(segment)), Context()) == {"batchItemFailures": []}
        metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert metrics["SegmentsQuarantined"] == [count]
        assert s3_objects.info(segment.staged_key) is None


def test_a_loss_that_no_agent_ever_saw_is_recorded_without_an_alarm(app, dynamo_table, capsys):
    unseen = SegmentLost(STREAM, Offset(0), Offset(40), "deleted before", unseen=True)
    assert app.lambda_handler(sqs_event(envelope(unseen)), Context()) == {"batchItemFailures": []}
    (loss,) = dynamo_table.missing(STREAM.incarnation)
    assert (loss.first_offset, loss.next_offset, loss.reason) == (0, 40, "deleted before")
    assert json.loads(capsys.readouterr().out)["SegmentsLost"] == [0.0]


def test_a_whole_batch_that_fails_is_named_record_by_record(app):
    answer = app.lambda_handler(sqs_event("{}", "[]"), Context())
    assert [failure["itemIdentifier"] for failure in answer["batchItemFailures"]] == ["message-0", "message-1"]


def test_importing_the_function_needs_no_configuration_and_makes_no_client(monkeypatch):
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "COLDSTREAM_BUCKET", "COLDSTREAM_TABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("boto3.session.Session.client", None)
    spec = importlib.util.spec_from_file_location("upload_app", APP)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
