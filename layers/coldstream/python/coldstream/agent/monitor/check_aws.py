"""The checks of AWS: each right that the agent needs, tried at keys and items that nothing else uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from zlib import crc32

from coldstream.agent.monitor.check import Check, CheckedPart, CheckOutcome, failed, ok, unknown
from coldstream.archive.envelope import DETAIL_TYPE, source_of
from coldstream.errors import (
    AccessDeniedError,
    BadCrcError,
    ColdstreamError,
    ObjectNotFoundError,
    ReplacedError,
    UnavailableError,
)
from coldstream.ingest.bus import EventBridgeBus
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ManifestTable
from coldstream.store.settings import Settings
from coldstream.store.table import DynamoTable
from coldstream.units import MAX_OFFSET, ByteRange, Offset, now_ms

GRANT = (
    "grant it, as AgentPolicy does, an output of an up-to-date stack; with a KMS key also kms:GenerateDataKey and"
    " kms:Decrypt"
)
NAME = "is it the stack's output, in the same region and account: Bucket, Table, EventBus?"
REACH = "region, endpoint and network: is AWS_DEFAULT_REGION right, and is outgoing HTTPS let through?"
BYTE = b"\0"
NODE_OF_CHECKS = "coldstream-agent-check"
NO_ETAG = '"0"'


def check_aws(environment: Mapping[str, str], *, has_recovery_log: bool = False) -> list[Check]:
    """Check each right on the archive that COLDSTREAM_* name. Costs a dozen requests, and leaves nothing there.

    An agent with a recovery log (`--quiet-span`) needs some more.
    """
    what = "the settings of the archive are complete"
    try:
        settings = Settings.from_environment(environment)
        bus_name = environment.get("COLDSTREAM_EVENT_BUS")
        if not bus_name:
            return [failed(CheckedPart.AWS, what, "COLDSTREAM_EVENT_BUS: is not set", "set it")]
        objects, table, bus = S3Objects(settings.bucket), DynamoTable(settings.table), EventBridgeBus(bus_name)
    except ColdstreamError as err:
        return [failed(CheckedPart.AWS, what, err, "set it, from the outputs of the stack")]
    return [
        *_until_unreachable(_bucket_checks(objects, settings)),
        *_until_unreachable(_span_checks(objects, settings) if has_recovery_log else iter(())),
        *_until_unreachable(_table_checks(table, settings.table)),
        *_until_unreachable(_bus_checks(bus, bus_name, settings.cluster)),
    ]


def _until_unreachable(checks: Iterator[Check]) -> list[Check]:
    """Make the checks of one service, and stop at the first that shows that the others must fail for the same reason.

    Each of them would wait out the SDK's retries before it said so.
    """
    made: list[Check] = []
    for check in checks:
        made.append(check)
        if check.outcome is CheckOutcome.FAILED and check.advice in {REACH, NAME}:
            break
    return made


def _try(what: str, call: Callable[[], str]) -> Check:
    try:
        return ok(CheckedPart.AWS, what, call())
    except ColdstreamError as err:
        return failed(CheckedPart.AWS, what, err, _advice_on(err))


def _advice_on(err: ColdstreamError) -> str:
    if isinstance(err, AccessDeniedError):
        return GRANT
    return REACH if isinstance(err, UnavailableError) else NAME


def _incarnation_of_checks() -> Incarnation:
    """Return an incarnation that no stream has: the broker does not begin a name so."""
    return Incarnation(f"__coldstream-agent-check_{now_ms():013}000000")


def _bucket_checks(objects: S3Objects, settings: Settings) -> Iterator[Check]:
    bucket = settings.bucket
    key = Keys(settings.prefix, settings.cluster).staged(_incarnation_of_checks(), Offset(0), Offset(1))

    def list_objects() -> str:
        next(iter(objects.keys(key)), None)
        return f"bucket {bucket}"

    def list_uploads() -> str:
        objects.uploads(key)
        return f"bucket {bucket}"

    def read() -> str:
        with suppress(ObjectNotFoundError):
            objects.get_range(key, ByteRange(0, 1))
        return f"{key}: none there, as it should be"

    yield _try("s3:ListBucket", list_objects)
    yield _try("s3:ListBucketMultipartUploads", list_uploads)
    yield _try("s3:GetObject", read)
    yield from _upload_checks(objects, key)


def _upload_checks(objects: S3Objects, key: str) -> Iterator[Check]:
    """Begin an upload and drop it: that takes the right to write, also with a key of KMS, and makes no object."""
    what = "s3:PutObject"
    try:
        upload_id = objects.create_upload(key)
    except ColdstreamError as err:
        yield failed(CheckedPart.AWS, what, err, _advice_on(err))
        for other in ("s3:ListMultipartUploadParts", "s3:AbortMultipartUpload"):
            yield unknown(CheckedPart.AWS, other, "not tried, as no upload could be begun")
        return

    def write() -> str:
        objects.put_part(key, upload_id, 1, BYTE, crc32=crc32(BYTE))
        return f"a part of {key}, which never becomes an object"

    def list_parts() -> str:
        objects.parts(key, upload_id)
        return f"those of {key}"

    def abort() -> str:
        objects.abort_upload(key, upload_id)
        return f"that to {key}"

    try:
        yield _try(what, write)
        yield _try("s3:ListMultipartUploadParts", list_parts)
    finally:
        # Also if whoever takes the checks stops after a failure: parts of an upload that nobody ends cost money.
        aborted = _try("s3:AbortMultipartUpload", abort)
    yield aborted


def _span_checks(objects: S3Objects, settings: Settings) -> Iterator[Check]:
    """Try the rights on the recovery log: by a PUT that S3 refuses for its checksum, and by deleting what is not there.

    A stack of before the recovery log does not grant them.
    """
    key = Keys(settings.prefix, settings.cluster).span(NODE_OF_CHECKS, now_ms())

    def write() -> str:
        try:
            objects.put_new(key, BytesIO(BYTE), size_bytes=len(BYTE), crc32=crc32(BYTE) ^ 1)
        except BadCrcError:
            pass
        else:  # an emulator, which looks at no checksum
            objects.delete(key)
        return f"{key}, refused for its checksum, as it should be"

    def read() -> str:
        with suppress(ObjectNotFoundError):
            objects.get_range(key, ByteRange(0, 1))
        return key

    def delete() -> str:
        # With a condition, as without one a bucket that keeps versions would note that it was deleted.
        with suppress(ReplacedError):
            objects.delete(key, if_match=NO_ETAG)
        return f"{key}: none there, as it should be"

    for action, call in (("s3:PutObject", write), ("s3:GetObject", read), ("s3:DeleteObject", delete)):
        yield _try(f"{action}, recovery log", call)


def _table_checks(table: ManifestTable, name: str) -> Iterator[Check]:
    incarnation = _incarnation_of_checks()

    def get() -> str:
        table.gap(incarnation, Offset(0))
        return f"table {name}"

    def query() -> str:
        table.log_before(incarnation, Offset(MAX_OFFSET), 1)
        return f"table {name}"

    yield _try("dynamodb:GetItem", get)
    yield _try("dynamodb:Query", query)


def _bus_checks(bus: EventBridgeBus, name: str, cluster: Cluster) -> Iterator[Check]:
    def put() -> str:
        bus.check(source=source_of(cluster), detail_type=DETAIL_TYPE)
        return f"bus {name}, by an event that it refuses as malformed"

    yield _try("events:PutEvents", put)
