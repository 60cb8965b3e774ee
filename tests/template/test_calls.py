"""Agent, uploader and resolver do their work on an emulated AWS: they may make every call that they make, and no other.

Those for a customer's KMS key are left out here: S3 and DynamoDB use them, in the caller's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from coldstream.agent.archive import ArchiveClient
from coldstream.archive.lost import SegmentLost
from coldstream.archive.missing import record_loss
from coldstream.archive.rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.resolve.answer import RangesQuery
from coldstream.resolve.caller import Caller, Proof
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.resolver import Resolver
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange, Offset, TimestampMs, now_ms
from tests.support.calls import recorded_calls
from tests.support.cloudformation import Stack
from tests.support.iam import Request, is_allowed, is_denied
from tests.support.segments import START, STREAM, write_stream

BUS = "coldstream-of-the-template"
LAMBDAS = {"logs:CreateLogStream", "logs:PutLogEvents", "xray:PutTraceSegments", "xray:PutTelemetryRecords"}
"""What Lambda does in the name of a function."""


class World:
    """An archive on the emulated AWS, of the prefix of a stack."""

    def __init__(self, stack: Stack, table: str, bucket: str, directory: Path) -> None:
        self.stack = stack
        self.keys = Keys(stack.parameters["Prefix"])
        self.table, self.objects = DynamoTable(table), S3Objects(bucket)
        self.uploader = Uploader(self.table, self.objects, self.keys, fragment_bytes=20_000)
        self.environment = {
            "COLDSTREAM_BUCKET": bucket,
            "COLDSTREAM_TABLE": table,
            "COLDSTREAM_EVENT_BUS": BUS,
            "COLDSTREAM_PREFIX": self.keys.prefix,
        }
        self.directory = directory
        self.arns = {"bucket": stack.arn("Bucket"), "table": stack.arn("Table"), "bus": stack.arn("EventBus")}

    async def stage_all(self) -> list[SegmentRolled]:
        """Do what an agent does with the segments of the stream."""
        archive = ArchiveClient.from_environment(self.environment, BandwidthLimit(None), 2)
        try:
            segments = [await archive.stage(segment, STREAM, None) for segment in find_rolled(self.directory)]
            for segment in segments:
                await archive.check_cluster(STREAM)
                await archive.announce(segment)
                assert not await archive.is_copy_in_quarantine(segment)
            await archive.covered_to(STREAM.incarnation, Offset(0), None)
            await archive.newest_life(STREAM.vhost, STREAM.name)
            await archive.last_entry(STREAM.incarnation)
        finally:
            archive.stop()
        return segments

    def granted(self, principal: str) -> list[Mapping[str, Any]]:
        """Return the statements of a role or a policy."""
        properties = self.stack.properties(principal)
        policies = properties.get("Policies", [properties])
        return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]

    def refused(self, principal: str, requests: list[Request]) -> list[Request]:
        """Return the requests that a role or policy does not allow, or the bucket refuses."""
        granted = self.granted(principal)
        bucket = self.stack.properties("BucketPolicy")["PolicyDocument"]["Statement"]
        return [each for each in requests if not is_allowed(granted, each) or is_denied(bucket, each)]

    def never_used(self, principal: str, requests: list[Request]) -> set[str]:
        """Return the actions that a role or policy allows, and no request is."""
        actions = [statement["Action"] for statement in self.granted(principal) if statement["Effect"] == "Allow"]
        allowed = {each for action in actions for each in ([action] if isinstance(action, str) else action)}
        return allowed - {each.action for each in requests}


@pytest.fixture
def world(stack: Stack, table_name: str, s3_objects: S3Objects, tmp_path: Path) -> Iterator[World]:
    write_stream(tmp_path / "stream", chunks=250)
    events = boto3.session.Session().client("events")
    events.create_event_bus(Name=BUS)
    yield World(stack, table_name, s3_objects.bucket, tmp_path / "stream")
    events.delete_event_bus(Name=BUS)


@pytest.mark.parametrize(("policy", "cluster"), [("AgentPolicy", ""), ("ClusterAgentPolicy", "eu")])
async def test_the_agent_may_make_every_call_that_it_makes(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: str, cluster: str
) -> None:
    world.environment["COLDSTREAM_CLUSTER"] = cluster
    world.keys = replace(world.keys, cluster=Cluster(cluster))
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    monkeypatch.setattr("coldstream.ingest.multipart.PART_BYTES", 30_000)
    first = find_rolled(world.directory)[0]
    for _ in range(2):  # one is gone on with, the other ended
        world.objects.create_upload(world.keys.staged(STREAM.incarnation, first.first_offset, first.next_offset))
    with recorded_calls(world.arns) as requests:
        await world.stage_all()
    tag: dict[str, str | list[str]] = {"aws:PrincipalTag/coldstream-cluster": cluster} if cluster else {}
    requests = [replace(each, context={**each.context, **tag}) for each in requests]
    assert world.refused(policy, requests) == []
    assert world.never_used(policy, requests) == set()
    other = "AgentPolicy" if cluster else "ClusterAgentPolicy"
    refused = {each.action for each in world.refused(other, requests)}
    assert {"s3:PutObject", "events:PutEvents"} <= refused


async def test_the_uploader_may_make_every_call_that_it_makes(world: World) -> None:
    segments = await world.stage_all()
    assert len(segments) > 3
    segments[1] = damaged(world, segments[1])
    with recorded_calls(world.arns) as requests:
        # Out of order, which makes and closes gaps; and some twice.
        done = [world.uploader.upload(segment) for segment in (*reversed(segments), segments[1], segments[0])]
        world.table.bind_cluster("/", "payments", Cluster("eu"))
        beyond = segments[-1].next_offset
        record_loss(world.table, SegmentLost(STREAM, beyond, Offset(beyond + 9), "lost"), now_ms)
    assert [upload.quarantined is not None for upload in done].count(True) == 2
    assert world.refused("UploadRole", requests) == []
    assert world.never_used("UploadRole", requests) == {
        "sqs:ReceiveMessage",  # Lambda's poller's
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        *LAMBDAS,
    }


async def test_the_resolver_may_make_every_call_that_it_makes_and_its_urls_name_what_it_may_read(world: World) -> None:
    for segment in await world.stage_all():
        world.uploader.upload(segment)
    resolver = Resolver(world.table, world.objects, url_expiry_s=60)
    specs: list[OffsetSpec] = [FIRST, LAST, NEXT, AtOffset(Offset(5)), AtTimestamp(TimestampMs(START + 5))]
    with recorded_calls(world.arns) as requests:
        resolver.streams(None, 10)
        Permissions(world.table).of(Caller(Proof.IAM, "arn:aws:iam::123456789012:user/reader"))
        resolver.describe(STREAM.vhost, STREAM.name, None)
        answers = [resolver.ranges(RangesQuery(STREAM.vhost, STREAM.name, spec)) for spec in specs]
    bucket = world.arns["bucket"]
    tls = {"aws:SecureTransport": "true"}
    reads = [Request("s3:GetObject", f"{bucket}/{each.key}", tls) for answer in answers for each in answer.ranges]
    assert reads
    assert world.refused("ResolverRole", requests + reads) == []
    assert any(each.resource.endswith("/index/by-time") for each in requests)
    assert world.never_used("ResolverRole", requests + reads) == LAMBDAS


def damaged(world: World, segment: SegmentRolled) -> SegmentRolled:
    """Flip a bit of a staged copy, and return what announces that copy."""
    client = boto3.session.Session().client("s3")
    found = world.objects.get_range(segment.staged_key, ByteRange(0, segment.size_bytes)).data
    changed = bytearray(found)
    changed[len(found) // 2] ^= 1
    put = client.put_object(Bucket=world.objects.bucket, Key=segment.staged_key, Body=bytes(changed))
    return replace(segment, etag=put["ETag"])
