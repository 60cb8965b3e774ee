"""What people, events and programs have an archive do: commands that ask a store, functions, and direct streams."""

from __future__ import annotations

from coldstream.archive.segment_lost import SegmentLost
from coldstream.units import Offset
from tests.faults.broker_acts import find_published, find_rows, with_streams
from tests.faults.direct_acts import append, find_appended
from tests.faults.fault_acts import asked, command, function, upload_event, with_bus
from tests.faults.fault_scenario import FaultScenario
from tests.faults.faulty_world import ORDERS, REBUILT, FaultyWorld, segments_directory
from tests.faults.job_acts import create_job, open_queue, run_queued_job, run_worker
from tests.faults.more_scenarios import MORE
from tests.faults.prepared_acts import DELETE, GRANT, POLICY, archive_aside, later, leave_garbage, log_archived, rebuild
from tests.faults.serving_scenarios import SERVING
from tests.faults.steering_scenarios import STEERING

_LOST = SegmentLost(ORDERS, Offset(5000), Offset(5001), "the disk was full")
_YES = ("--yes", "--by", "alice")
_SHORT_POLICY = command("policy", "set", "all", "--streams", "*/*", "--max-size", "1")
_TRUNCATE = command("truncate", "orders", "--to", "171", *_YES)
_CREATE_JOB = create_job("scrub")
_COMPACT_JOB = create_job("compact", "--stream", "orders")
_WORKERS_JOB = create_job("compact", "--stream", "orders", "--runner", "worker")
_EXPORT_JOB = create_job(
    "export",
    *("--stream", "orders", "--format", "jsonl"),
    more=lambda world: ("--destination", str(world.scratch / "export")),
)
_LOAD_JOB = create_job("load", "--stream", "orders", "--to-stream", "again")
_TABLE_JOB = create_job("load", "--stream", "orders", more=lambda world: ("--to-table", str(world.scratch / "table")))
_SCOPES = "coldstream.jobs:read coldstream.read:*/*"
_ASKED = asked("/ranges?vhost=%2F&name=orders&spec=first")


def _directory(_: FaultyWorld) -> tuple[str]:
    return (str(segments_directory()),)


SCENARIOS: dict[str, FaultScenario] = {
    scenario.name: scenario
    for scenario in (
        *STEERING,
        *SERVING,
        *MORE,
        FaultScenario("read", command("read", "orders", "--from", "first"), is_exact=True),
        FaultScenario("read raw from an offset", command("read", "orders", "--from", "150", "--raw"), is_exact=True),
        FaultScenario("read from a time", command("read", "orders", "--from", "2020-01-01T00:00:00Z"), is_exact=True),
        FaultScenario("streams", command("streams")),
        FaultScenario("describe", command("describe", "orders", "-o", "json")),
        FaultScenario("resolve", command("resolve", "orders", "first"), is_exact=True),
        FaultScenario("history", command("history", "orders", "-o", "json")),
        FaultScenario("doctor", command("doctor")),
        FaultScenario("scrub", command("scrub", "orders", "--deep", "--restart")),
        FaultScenario("compact", command("compact", "orders", "--older-than", "0s", "--jobs", "1")),
        FaultScenario(
            "compact into zstd",
            command("compact", "orders", "--older-than", "0s", "--encoding", "zstd-seekable", "--jobs", "1"),
        ),
        FaultScenario("truncate", _TRUNCATE, uploaded=3),
        FaultScenario("delete", DELETE, again=False),
        FaultScenario(
            "undelete",
            command("undelete", "orders", "--by", "bob"),
            prepared=(DELETE,),
            again=False,
        ),
        FaultScenario(
            "sweep",
            command("sweep", "--yes"),
            prepared=(_TRUNCATE, later(9)),
            uploaded=3,
        ),
        FaultScenario(
            "garbage",
            command("garbage", "--delete", "--yes", "--older-than", "1h"),
            prepared=(leave_garbage, later(90)),
        ),
        FaultScenario("rebuild", rebuild("orders"), table=REBUILT, of=frozenset({"rebuild"})),
        FaultScenario(
            "erase",
            command("erase", "orders", "--offsets", "10:20", "--reason", "a ticket", "--with-quarantine", *_YES),
            uploaded=5,
            again=False,
        ),
        FaultScenario(
            "hold",
            command("hold", "put", "orders", "--reason", "a lawsuit", "--by", "alice"),
            again=False,
        ),
        FaultScenario("policy", POLICY),
        FaultScenario("access", GRANT),
        FaultScenario(
            "retention",
            command("retention", "run", "--yes"),
            prepared=(_SHORT_POLICY,),
        ),
        FaultScenario("quarantine", command("quarantine", "list"), is_exact=True),
        FaultScenario("jobs", _CREATE_JOB),
        FaultScenario("jobs list", command("jobs", "list"), prepared=(_CREATE_JOB,)),
        FaultScenario("upload", function("upload", lambda world: upload_event(*world.staged)), after=(archive_aside,)),
        FaultScenario("upload of a loss", function("upload", lambda world: upload_event(_LOST))),
        FaultScenario("resolver", function("resolver", _ASKED)),
        FaultScenario("resolver of streams", function("resolver", asked("/streams"))),
        FaultScenario("sweep function", function("sweep"), prepared=(_TRUNCATE, later(9)), uploaded=3),
        FaultScenario("garbage function", function("garbage"), prepared=(leave_garbage, later(90))),
        FaultScenario("scrub function", function("scrub")),
        FaultScenario("retention function", function("retention"), prepared=(_SHORT_POLICY,)),
        FaultScenario("erase function", function("erase")),
        FaultScenario("announce", with_bus(command("announce", more=_directory)), uploaded=1),
        FaultScenario("recover", with_bus(command("recover")), prepared=(log_archived,)),
        FaultScenario(
            "worker with a compaction", run_worker(_WORKERS_JOB), prepared=(_WORKERS_JOB,), of=frozenset({"worker"})
        ),
        FaultScenario(
            "worker with an export", run_worker(_EXPORT_JOB), prepared=(_EXPORT_JOB,), of=frozenset({"worker"})
        ),
        FaultScenario(
            "worker with a load into a stream",
            with_streams(run_worker(_LOAD_JOB)),
            prepared=(_LOAD_JOB,),
            after=(find_published("again"),),
            of=frozenset({"worker"}),
        ),
        FaultScenario(
            "worker with a load into a table",
            run_worker(_TABLE_JOB),
            prepared=(_TABLE_JOB,),
            after=(find_rows,),
            of=frozenset({"worker"}),
        ),
        FaultScenario(
            "job function",
            run_queued_job(_COMPACT_JOB),
            prepared=(open_queue, _COMPACT_JOB),
            of=frozenset({"job_runner function"}),
        ),
        FaultScenario("tick function", function("job_tick"), prepared=(open_queue, _COMPACT_JOB)),
        FaultScenario("API of streams", function("api", asked("/v1/streams", _SCOPES))),
        FaultScenario(
            "API of a timeline", function("api", asked("/v1/stream/timeline?vhost=%2F&name=orders", _SCOPES))
        ),
        FaultScenario("API of messages", function("api", asked("/v1/stream/messages?vhost=%2F&name=orders", _SCOPES))),
        FaultScenario("API of jobs", function("api", asked("/v1/jobs", _SCOPES)), prepared=(_CREATE_JOB,)),
        FaultScenario("appender of a direct stream", append, after=(find_appended,), outage=8),
    )
}
