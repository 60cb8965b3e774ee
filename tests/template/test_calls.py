"""Agent, uploader and resolver work on an emulated AWS: policies allow every call that they make, and no other.

Those for a customer's KMS key are left out here: S3 and DynamoDB use them, in the caller's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest

from coldstream.agent.archive import ArchiveClient
from coldstream.api import serving
from coldstream.api.job_rights import JobRights
from coldstream.api.serving import ServedArchive
from coldstream.archive.cluster_binding import claim
from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.errors import UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.announcer import SliceOutcome
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.purging import plan_purge_begin
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.resolve.answer import RangesQuery
from coldstream.resolve.caller import Authentication, Caller
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.resolver import Resolver
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.span_object import span_object
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange, Offset, TimestampMs, now_ms
from tests.support.asked_api import AskedApi, signed_by
from tests.support.calls import recorded_calls
from tests.support.cloudformation import Stack
from tests.support.iam import Request
from tests.support.permitted import LAMBDAS, arns_of, never_used, refused
from tests.support.removing import delete, head_of, remove_prefix
from tests.support.segments import START, STREAM, write_stream

BUS = "coldstream-of-the-template"


class World:
    """An archive on the emulated AWS, under a stack's prefix."""

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
        self.arns = arns_of(stack)

    async def stage_all(self) -> list[SegmentRolled]:
        """Do what an agent does with the segments of the stream."""
        archive = ArchiveClient.from_environment(self.environment, BandwidthLimit(None), 2)
        try:
            segments = [await archive.stage(segment, STREAM, None) for segment in find_rolled(self.directory)]
            for segment in segments:
                await archive.check_accepted(STREAM)
                announcement = await archive.announce(segment)
                assert await archive.outcome(announcement) is SliceOutcome.PENDING
            await archive.covered_to(STREAM.incarnation, Offset(0), segments[-1].next_offset)
            await archive.newest_incarnation(STREAM.vhost, STREAM.name)
            await archive.last_entry(STREAM.incarnation)
        finally:
            archive.stop()
        return segments

    async def log_and_delete(self) -> None:
        """Do what an agent does with an object of its recovery log."""
        archive = ArchiveClient.from_environment(self.environment, BandwidthLimit(None), 2)
        key = self.keys.span("node-1", TimestampMs(1))
        try:
            await archive.put_span(key, span_object([]))
            assert await archive.spans("node-1") == (key,)
            assert (await archive.span_header(key)).entries == ()
            assert (await archive.delete_spans([key])).deleted == (key,)
        finally:
            archive.stop()

    def refused(self, principal: str, requests: list[Request]) -> list[Request]:
        return refused(self.stack, principal, requests)

    def never_used(self, principal: str, requests: list[Request]) -> set[str]:
        return never_used(self.stack, principal, requests)


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
        await world.log_and_delete()
    tag: dict[str, str | list[str]] = {"aws:PrincipalTag/coldstream-cluster": cluster} if cluster else {}
    requests = [replace(each, context={**each.context, **tag}) for each in requests]
    assert world.refused(policy, requests) == []
    assert world.never_used(policy, requests) == set()
    other = "AgentPolicy" if cluster else "ClusterAgentPolicy"
    refused = {each.action for each in world.refused(other, requests)}
    assert {"s3:PutObject", "events:PutEvents"} <= refused


async def test_the_uploader_may_make_every_call_that_it_makes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = await world.stage_all()
    assert len(segments) > 3
    segments[1] = damaged(world, segments[1])
    later = damaged(world, segments.pop())
    with recorded_calls(world.arns) as requests:
        with monkeypatch.context() as patch:
            patch.setattr("coldstream.archive.fragment_writer.commit_fragment", unavailable)
            with pytest.raises(UnavailableError):  # the next upload finds its fragment there
                world.uploader.upload(segments[0])
        # Out of order, which makes and closes gaps; and some twice.
        done = [world.uploader.upload(segment) for segment in (*reversed(segments), segments[1], segments[0])]
        control = ControlObjects(world.objects, world.keys)
        claim(world.table, control, StreamId("/", "payments", Incarnation("__payments_1")), Cluster("eu"))
        beyond = later.next_offset
        record_loss(world.table, control, SegmentLost(STREAM, beyond, Offset(beyond + 9), "lost"), now_ms)
        with monkeypatch.context() as patch:
            patch.setattr(S3Objects, "copy", deleted_meanwhile(world))
            removed = world.uploader.upload(later)
    assert [upload.quarantined is not None for upload in done].count(True) == 2
    assert removed.removed
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
        Permissions(world.table).of(Caller(Authentication.IAM, "arn:aws:iam::123456789012:user/reader"))
        resolver.describe(STREAM.vhost, STREAM.name, None)
        answers = [resolver.ranges(RangesQuery(STREAM.vhost, STREAM.name, spec)) for spec in specs]
    bucket = world.arns["bucket"]
    tls = {"aws:SecureTransport": "true"}
    reads = [Request("s3:GetObject", f"{bucket}/{each.key}", tls) for answer in answers for each in answer.ranges]
    assert reads
    assert world.refused("ResolverRole", requests + reads) == []
    assert any(each.resource.endswith("/index/by-time") for each in requests)
    assert world.never_used("ResolverRole", requests + reads) == LAMBDAS


async def test_the_api_may_make_every_call_that_it_makes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for segment in await world.stage_all():
        world.uploader.upload(segment)
    api = AskedApi()
    api.served = ServedArchive(world.table, world.objects, Permissions(world.table), JobRights(), now_ms)
    monkeypatch.setattr(serving, "served", lambda: api.served)
    world.table.put_grant(Grant("arn:aws:iam::123456789012:user/reader", "*/*"))
    api.authorizer = signed_by("arn:aws:iam::123456789012:user/reader")
    stream = f"vhost={quote(STREAM.vhost, safe='')}&name={STREAM.name}"
    with recorded_calls(world.arns) as requests:
        spec = {"kind": "load", "streams": [STREAM.name], "start": "-1h", "target": {"type": "stream", "name": "again"}}
        job = api("POST", "/v1/jobs", spec, headers={"Idempotency-Key": "k"}).headers["location"]
        asked = [
            api("POST", "/v1/jobs/preview", spec | {"streams": ["*"], "start": str(START)}),
            api("POST", "/v1/jobs/preview", {"kind": "retention"}),
            api("GET", "/v1/jobs"),
            api("GET", job),
            api("PATCH", job, {"rate": 5.0}),
            *(api("POST", f"{job}/{verb}") for verb in ("pause", "resume", "cancel")),
            api("GET", f"{job}/log"),
            api("DELETE", job),
            api("GET", "/v1/streams"),
            api("GET", f"/v1/stream?{stream}"),
            api("GET", f"/v1/stream/timeline?{stream}"),
            api("GET", f"/v1/stream/messages?{stream}&at=timestamp:{START + 5}"),
            api("GET", f"/v1/stream/search?{stream}&where=size%20%3E%200"),
            api("GET", f"/v1/stream/search/forecast?{stream}&where=size%20%3E%200"),
        ]
    assert {reply.status for reply in asked} == {200, 204}
    assert world.refused("ApiRole", requests) == []
    assert any(each.resource.endswith("/index/by-time") for each in requests)
    assert world.never_used("ApiRole", requests) == LAMBDAS


def damaged(world: World, segment: SegmentRolled) -> SegmentRolled:
    """Flip a bit of a staged copy, and return its announcement."""
    client = boto3.session.Session().client("s3")
    found = world.objects.get_range(segment.staged_key, ByteRange(0, segment.size_bytes)).data
    changed = bytearray(found)
    changed[len(found) // 2] ^= 1
    put = client.put_object(Bucket=world.objects.bucket, Key=segment.staged_key, Body=bytes(changed))
    return replace(segment, etag=put["ETag"])


def deleted_meanwhile(world: World) -> Callable[..., None]:
    """Return a copy into quarantine, after which the stream is removed, deleted, and its purge begins."""
    original = S3Objects.copy

    def copy(objects: S3Objects, *args: Any, **options: Any) -> None:
        original(objects, *args, **options)
        while remove_prefix(world.table, STREAM.incarnation, 100):
            pass
        delete(world.table, STREAM.incarnation)
        world.table.apply(plan_purge_begin(head_of(world.table, STREAM.incarnation), now_ms()))

    return copy


def unavailable(*_: Any, **__: Any) -> bool:
    raise UnavailableError("no answer")
