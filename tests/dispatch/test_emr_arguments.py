"""What the Spark scripts are given: their own parsers read it, and find what the job says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import compact
import maintain
import pytest
import replay
from coldstream_spark.maintenance.arguments import ACTIONS, parser

from coldstream.compact.arguments import CompactArguments
from coldstream.compact.options import CompactOptions
from coldstream.dispatch.emr_arguments import MOST_NAMES, ScriptCall, script_call
from coldstream.erase.selection import Selection
from coldstream.errors import RunnerError
from coldstream.jobs.job import Job
from coldstream.jobs.sealing import sealed
from coldstream.jobs.specs import EraseSpec, parse_spec
from coldstream.replay.arguments import ReplayArguments
from coldstream.terminal.options import from_namespace
from coldstream.units import TimestampMs
from coldstream.upkeep.erase import erasure_id_of

BEGAN = TimestampMs(1_769_850_000_000)
NASTY = "--stream=x; rm -rf 'ö' $HOME"


def job_of(kind: str, **fields: Any) -> Job:
    spec = sealed(parse_spec({"kind": kind, **fields}))
    return Job("2sb1jww6fz-abcdef", spec, BEGAN, by="ann", epoch=3, run_began_at=BEGAN)


def call_of(job: Job, *names: str) -> ScriptCall:
    return script_call(job, names, url_expiry_s=3600, report="spark-1")


def maintained(call: ScriptCall) -> tuple[Any, Any]:
    assert call.script == "maintain.py"
    given = parser("").parse_args(call.arguments)
    arguments = from_namespace(ACTIONS[given.action][0], given)
    maintain._check(given, arguments)
    return given, arguments


def test_compaction() -> None:
    job = job_of("compact", vhost="v 1", older_than="30d", target_size="256MiB", encoding="identity", level=7)
    call = call_of(job, "orders", NASTY, "-x")
    assert call.script == "compact.py"
    given = compact.parser().parse_args(call.arguments)
    arguments = from_namespace(CompactArguments, given)
    options = CompactOptions.of(arguments)
    assert given.stream == ["orders", NASTY, "-x"]
    assert (arguments.vhost, arguments.every, given.report) == ("v 1", False, "spark-1")
    assert (options.older_than_ms, options.target_bytes, options.encoding, options.level) == (
        30 * 24 * 3600 * 1000,
        256 << 20,
        "identity",
        7,
    )
    assert options.grace_ms == 2 * 3600 * 1000


def test_all_streams_are_asked_for_as_all() -> None:
    given = compact.parser().parse_args(call_of(job_of("compact")).arguments)
    assert (given.every, given.stream) == (True, [])


def test_a_scrub() -> None:
    given, arguments = maintained(call_of(job_of("scrub", deep=True, repair=True), "orders"))
    assert (given.action, given.stream, arguments.deep, arguments.repair) == ("scrub", ["orders"], True, True)
    _, arguments = maintained(call_of(job_of("scrub")))
    assert (arguments.every, arguments.deep, arguments.repair) == (True, False, False)


def test_retention() -> None:
    given, arguments = maintained(call_of(job_of("retention", dry_run=True), "a", "b"))
    assert (given.action, given.stream, arguments.dry_run) == ("retention", ["a", "b"], True)
    assert arguments.url_expiry == "3600s"


def test_an_erasure_has_its_id_and_digests_and_no_value() -> None:
    job = job_of("erase", stream="orders", key="alice@example.com", offsets="5:900", reason="ticket 4711; 'x'")
    call = call_of(job, "orders")
    given, arguments = maintained(call)
    assert "alice" not in str(call)
    assert given.erasure_id == erasure_id_of(job)
    assert (given.action, arguments.offsets, arguments.reason) == ("erase", "5:900", "ticket 4711; 'x'")
    assert arguments.by == f"ann by job {job.id}"
    assert isinstance(job.spec, EraseSpec)
    assert Selection.from_text(arguments.selection, source="test").key is not None
    assert not arguments.with_quarantine
    more = job_of("erase", stream="o", incarnation="__o_1", offsets="5:", reason="x", with_other_copies=True)
    _, arguments = maintained(call_of(more, "o"))
    assert (arguments.incarnation, arguments.with_quarantine, arguments.selection) == ("__o_1", True, None)


@pytest.mark.parametrize(("form", "field"), [("parquet", "to_parquet"), ("jsonl", "to_jsonl")])
def test_a_load_into_a_table(form: str, field: str) -> None:
    target = {"type": "table", "path": "s3://lake/orders", "format": form, "gzip": True, "partition_by": "date"}
    job = job_of("load", streams=["o"], target=target, start="-1d", end="yesterday", window_by="chunk")
    call = call_of(job, "orders")
    given = replay.parser().parse_args(call.arguments)
    arguments = from_namespace(ReplayArguments, given)
    assert call.script == "replay.py"
    assert getattr(arguments, field) == "s3://lake/orders"
    assert (arguments.start, arguments.end) == ("2026-01-30T09:00:00.000Z", "2026-01-30T00:00:00.000Z")
    assert (arguments.gzip, arguments.partition_by, arguments.on_gap) == (form == "jsonl", "date", "raise")
    again = replay.parser().parse_args(call_of(replace(job, epoch=9), "orders").arguments)
    assert vars(given) == vars(again)


def test_an_export_has_a_checkpoint_of_its_own_and_gaps_that_are_allowed_are_passed() -> None:
    job = job_of("export", streams=["o"], destination="s3://lake/x/", format="parquet", allow_skipped=True)
    given = replay.parser().parse_args(call_of(job, "orders").arguments)
    assert given.checkpoint == f"s3://lake/x/_coldstream/job-{job.id}"
    assert from_namespace(ReplayArguments, given).on_gap == "skip"


def test_too_many_names_and_what_is_not_for_emr_are_refused() -> None:
    with pytest.raises(RunnerError, match="500 names"):
        call_of(job_of("compact"), *map(str, range(MOST_NAMES + 1)))
    with pytest.raises(RunnerError, match="no broker"):
        call_of(job_of("store", streams=["x"]), "x")
