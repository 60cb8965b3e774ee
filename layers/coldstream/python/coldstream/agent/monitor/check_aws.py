"""Whether AWS lets the agent do what it does, right by right, at the keys and items that nothing else is at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from zlib import crc32

from coldstream.agent.monitor.check import Check, CheckedPart, CheckOutcome, failed
from coldstream.archive.events import DETAIL_TYPE, source_of
from coldstream.errors import AccessDeniedError, ColdstreamError, ObjectNotFoundError, UnavailableError
from coldstream.ingest.bus import EventBridgeBus
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ManifestTable
from coldstream.store.settings import Settings
from coldstream.store.table import DynamoTable
from coldstream.units import MAX_OFFSET, ByteRange, Offset, now_ms

GRANT = "grant it, as the template's output AgentPolicy does; with a KMS key also kms:GenerateDataKey and kms:Decrypt"
NAME = "is it the stack's output, in the same region and account: Bucket, Table, EventBus?"
REACH = "region, endpoint and network: is AWS_DEFAULT_REGION right, and is outgoing HTTPS let through?"
BYTE = b"\0"


def check_aws(environment: Mapping[str, str]) -> list[Check]:
    """Check each right on the archive that COLDSTREAM_* name. Costs a dozen requests, and leaves nothing there."""
    what = "the settings of the archive are complete"
    try:
        settings = Settings.from_environment(environment)
        bus_name = environment.get("COLDSTREAM_EVENT_BUS")
        if not bus_name:
            return [Check(CheckedPart.AWS, what, CheckOutcome.FAILED, "COLDSTREAM_EVENT_BUS: is not set", "set it")]
        objects, table, bus = S3Objects(settings.bucket), DynamoTable(settings.table), EventBridgeBus(bus_name)
    except ColdstreamError as err:
        return [failed(CheckedPart.AWS, what, err, "set it, from the outputs of the stack")]
    return [
        *_of_service(_bucket_checks(objects, settings)),
        *_of_service(_table_checks(table, settings.table)),
        *_of_service(_bus_checks(bus, bus_name, settings.cluster)),
    ]


def _of_service(checks: Iterator[Check]) -> list[Check]:
    """Take the checks of a service, but no more once it does not answer, or has not what is asked for."""
    found: list[Check] = []
    for check in checks:
        found.append(check)
        if check.outcome is CheckOutcome.FAILED and check.todo in {REACH, NAME}:
            break
    return found


def _tried(what: str, call: Callable[[], str]) -> Check:
    try:
        return Check(CheckedPart.AWS, what, CheckOutcome.OK, call())
    except ColdstreamError as err:
        return failed(CheckedPart.AWS, what, err, _todo(err))


def _todo(err: ColdstreamError) -> str:
    if isinstance(err, AccessDeniedError):
        return GRANT
    return REACH if isinstance(err, UnavailableError) else NAME


def _bucket_checks(objects: S3Objects, settings: Settings) -> Iterator[Check]:
    bucket = settings.bucket
    life = Incarnation(f"__coldstream-agent-check_{now_ms():013}000000")
    key = Keys(settings.prefix, settings.cluster).staged(life, Offset(0), Offset(1))

    def listing() -> str:
        next(iter(objects.keys(key)), None)
        return f"bucket {bucket}"

    def uploads() -> str:
        objects.uploads(key)
        return f"bucket {bucket}"

    def read() -> str:
        with suppress(ObjectNotFoundError):
            objects.get_range(key, ByteRange(0, 1))
        return f"{key}: none there, as it should be"

    yield _tried("s3:ListBucket", listing)
    yield _tried("s3:ListBucketMultipartUploads", uploads)
    yield _tried("s3:GetObject", read)
    yield from _upload_checks(objects, key)


def _upload_checks(objects: S3Objects, key: str) -> Iterator[Check]:
    """Begin an upload, and drop it: it needs the right to write, also with a key of KMS, and makes no object."""
    what = "s3:PutObject"
    try:
        upload_id = objects.create_upload(key)
    except ColdstreamError as err:
        yield failed(CheckedPart.AWS, what, err, _todo(err))
        not_tried = "not tried, for want of an upload"
        for other in ("s3:ListMultipartUploadParts", "s3:AbortMultipartUpload"):
            yield Check(CheckedPart.AWS, other, CheckOutcome.UNKNOWN, not_tried)
        return

    def write() -> str:
        objects.put_part(key, upload_id, 1, BYTE, crc32=crc32(BYTE))
        return f"a part of {key}, which never becomes an object"

    def parts() -> str:
        objects.parts(key, upload_id)
        return f"those of {key}"

    def abort() -> str:
        objects.abort_upload(key, upload_id)
        return f"that to {key}"

    try:
        yield _tried(what, write)
        yield _tried("s3:ListMultipartUploadParts", parts)
    finally:
        dropped = _tried("s3:AbortMultipartUpload", abort)
    yield dropped


def _table_checks(table: ManifestTable, name: str) -> Iterator[Check]:
    life = Incarnation(f"__coldstream-agent-check_{now_ms():013}000000")

    def get() -> str:
        table.gap(life, Offset(0))
        return f"table {name}"

    def query() -> str:
        table.log_before(life, Offset(MAX_OFFSET), 1)
        return f"table {name}"

    yield _tried("dynamodb:GetItem", get)
    yield _tried("dynamodb:Query", query)


def _bus_checks(bus: EventBridgeBus, name: str, cluster: Cluster) -> Iterator[Check]:
    def put() -> str:
        bus.check(source=source_of(cluster), detail_type=DETAIL_TYPE)
        return f"bus {name}, by an event that it refuses as malformed"

    yield _tried("events:PutEvents", put)
