"""Other forms of commands and functions that are played: they come to requests to which the plain ones do not."""

from __future__ import annotations

import boto3
import pytest

from coldstream.ingest.stage import find_rolled, stage
from coldstream.store.objects import S3Objects
from tests.faults.agent_acts import forget_staged
from tests.faults.direct_acts import append
from tests.faults.fault_acts import Outcome, asked, command, function, upload_event, with_bus
from tests.faults.fault_scenario import FaultScenario
from tests.faults.faulty_world import BUCKET, KEYS, ORDERS, REBUILT, FaultyWorld, segments_directory
from tests.faults.prepared_acts import (
    DELETE,
    GRANT,
    POLICY,
    damage_staged,
    delivered,
    later,
    leave_garbage,
    log_lost,
    rebuild,
)
from tests.support.segments import START

_BY = ("--by", "alice")
_SWEEP = command("sweep", "--yes")
_SCOPES = "coldstream.jobs:read coldstream.jobs:write coldstream.read:*/*"
_MESSAGES = "/v1/stream/messages?vhost=%2F&name=orders"
_RANGES = "/ranges?vhost=%2F&name=orders&precise=true"

_ERASE = ("erase", "orders", *_BY, "--yes")
_WHAT = ("--offsets", "10:20", "--reason", "a ticket", "--with-quarantine")
_GARBAGE = command("garbage", "--delete", "--yes", "--older-than", "1h", "--versions")


def _keep_versions(_: FaultyWorld) -> Outcome:
    """Have the bucket keep versions."""
    boto3.session.Session().client("s3").put_bucket_versioning(
        Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
    )
    return Outcome(b"")


def _erase_half(world: FaultyWorld) -> Outcome:
    """Begin to erase, and be killed before the first new object is written."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Objects, "put_new", killed)
        found = command(*_ERASE, *_WHAT)(world)
    assert found.problem is not None
    assert "exit code 130" in found.problem
    return Outcome(b"")


def _stage_archived(world: FaultyWorld) -> Outcome:
    """Stage a segment again that is archived."""
    (first, *_) = find_rolled(segments_directory())
    world.staged.insert(0, stage(first, ORDERS, world.objects, KEYS))
    return Outcome(b"")


def _in_parts(world: FaultyWorld) -> Outcome:
    """Stage and announce what is not archived, in parts that are far smaller than S3 takes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coldstream.ingest.multipart.PART_BYTES", 8192)
        patch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
        return with_bus(command("announce", more=lambda _: (str(segments_directory()),)))(world)


MORE = (
    FaultScenario("resolve precisely", command("resolve", "orders", "150", "--precise"), is_exact=True),
    FaultScenario(
        "resolve a time precisely",
        command("resolve", "orders", f"timestamp:{START + 300}", "--precise"),
        is_exact=True,
    ),
    FaultScenario("resolver, precisely", function("resolver", asked(f"{_RANGES}&offset=150"))),
    FaultScenario("read to an offset", command("read", "orders", "--from", "100", "--to", "200"), is_exact=True),
    FaultScenario("describe quarantine", command("describe", "orders", "-o", "json"), prepared=(damage_staged,)),
    FaultScenario("compact, what it would save", command("compact", "orders", "--older-than", "0s", "--dry-run")),
    FaultScenario(
        "compact into zstd, what it would save",
        command("compact", "orders", "--older-than", "0s", "--encoding", "zstd-seekable", "--dry-run"),
    ),
    FaultScenario("purge begins", _SWEEP, prepared=(DELETE, later(40))),
    FaultScenario("purge ends", _SWEEP, prepared=(DELETE, later(40), _SWEEP, later(9))),
    FaultScenario(
        "garbage of write-ahead logs",
        command("garbage", "--delete", "--yes", "--older-than", "1h"),
        prepared=(append, later(90)),
    ),
    FaultScenario(
        "rebuild what is in quarantine",
        rebuild("orders"),
        prepared=(damage_staged,),
        table=REBUILT,
        of=frozenset({"rebuild"}),
    ),
    FaultScenario(
        "rebuild all",
        rebuild(),
        prepared=(POLICY, GRANT, append),
        table=REBUILT,
        of=frozenset({"rebuild"}),
    ),
    FaultScenario("scrub of direct streams", command("scrub", "--restart"), prepared=(append,)),
    FaultScenario(
        "erase in a bucket with versions",
        command(*_ERASE, *_WHAT),
        prepared=(_keep_versions,),
        uploaded=5,
        again=False,
    ),
    FaultScenario(
        "erase, resumed",
        command(*_ERASE, "--resume"),
        prepared=(_erase_half,),
        uploaded=5,
    ),
    FaultScenario("purge in a bucket with versions", _SWEEP, prepared=(_keep_versions, DELETE, later(40))),
    FaultScenario("garbage in a bucket with versions", _GARBAGE, prepared=(_keep_versions, leave_garbage, later(90))),
    FaultScenario(
        "upload of what is archived",
        function("upload", lambda world: upload_event(world.staged[0])),
        prepared=(_stage_archived,),
    ),
    FaultScenario("announce in parts", _in_parts, prepared=(forget_staged,), uploaded=1, of=frozenset({"announce"})),
    FaultScenario(
        "recover what a lost node had",
        delivered(with_bus(command("recover", "--timeout", "0"))),
        prepared=(log_lost,),
        uploaded=1,
        of=frozenset({"recover"}),
    ),
    FaultScenario("API of a stream", function("api", asked("/v1/stream?vhost=%2F&name=orders", _SCOPES))),
    FaultScenario("API of earlier messages", function("api", asked(f"{_MESSAGES}&at=last", _SCOPES))),
)
