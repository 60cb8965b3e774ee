"""The functions with the built layer, in Docker, called with sample events by AWS's runtime interface emulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.dispatch.job_queue import job_of
from coldstream.format.native import CONTRACT
from coldstream.format.seekable import SeekTable, decompress_frames
from coldstream.jobs.job import OPEN_JOBS, Job, JobState
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.entry import Gap
from coldstream.manifest.shard_changes import first_map
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import incarnation
from coldstream.runtime import resolving
from coldstream.store.shard_maps import find_map
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs
from functions.resolver import app
from tests.support.fixtures import do_without
from tests.support.golden import GOLDEN
from tests.support.sam import BUCKET, ENCODING, EVENTS, TABLE, EmulatedAws, SamLocal
from tests.support.server import ROOT
from tests.support.written_maps import write

INCARNATION = incarnation("__tracking_1795227881250770221")
SEGMENT = GOLDEN / INCARNATION / "00000000000000000000.segment"
HANDLED: dict[str, Any] = {"batchItemFailures": []}


@pytest.fixture(scope="module")
def uploaded(sam: SamLocal) -> Any:
    """The upload function's answer to its first event."""
    return sam.invoke("UploadFunction", "upload")


@pytest.fixture(scope="module")
def without_native(sam: SamLocal, tmp_path_factory: pytest.TempPathFactory) -> SamLocal:
    """The same functions, with a layer that goes without the native module."""
    if not sam.native_module.exists():
        do_without("the native module in the layer", "make layer-native, with Rust: cargo and rustc, 1.83 or newer")
    return sam.without_native(tmp_path_factory.mktemp("without") / "build")


@pytest.fixture
def table(emulated: EmulatedAws, monkeypatch: pytest.MonkeyPatch) -> DynamoTable:
    for name, value in emulated.environment.items():
        monkeypatch.setenv(name, value)
    return DynamoTable(TABLE)


@pytest.fixture
def here(table: DynamoTable) -> Iterator[Callable[[str], Any]]:
    """The resolver in this process: its answer to a sample event."""
    resolving.resolver.cache_clear()
    context = SimpleNamespace(
        function_name="resolver", memory_limit_in_mb=512, invoked_function_arn="arn", aws_request_id="1"
    )
    yield lambda event: app.lambda_handler(sample(event), cast("LambdaContext", context))
    resolving.resolver.cache_clear()


@pytest.fixture
def sharded(table: DynamoTable, uploaded: Any) -> ShardMap:
    """A map of the name in the samples: the archived stream, and one that the archive does not know."""
    found = first_map(
        "/",
        sample("super")["queryStringParameters"]["name"],
        ShardKind.STREAMS,
        ShardHash.RANDOM,
        partitions=[Partition(0, "tracking"), Partition(0, "visits-1")],
        definition="{}",
        at=TimestampMs(1),
    )
    if find_map(table, found.vhost, found.name) is None:  # written once: the table is all tests'
        write(table, found)
    return found


def test_the_announced_segment_is_archived(
    sam: SamLocal, emulated: EmulatedAws, uploaded: Any, table: DynamoTable
) -> None:
    assert uploaded == HANDLED
    (entry,) = table.log_from_offset(INCARNATION, Offset(0), 10).entries
    assert (entry.first_offset, entry.next_offset) == (0, 396)
    assert entry.encoding is ENCODING
    body = emulated.s3.get_object(Bucket=BUCKET, Key=entry.key)["Body"].read()
    table_of_frames = SeekTable.from_bytes(body, source=entry.key, object_bytes=len(body))
    frames = body[: -len(table_of_frames.to_bytes())]
    fragment = decompress_frames(frames, table_of_frames.content_bytes, source=entry.key, position=0)
    assert fragment[: entry.data_bytes + 8] == SEGMENT.read_bytes()
    left = emulated.s3.list_objects_v2(Bucket=BUCKET, Prefix="staging/")
    assert left["KeyCount"] == 0


def test_the_layers_native_module_is_used_by_the_functions_python(without_native: SamLocal, sam: SamLocal) -> None:
    program = "from coldstream.format.scanner import NATIVE; print(NATIVE and NATIVE.CONTRACT)"
    assert sam.python(program) == f"{CONTRACT}\n"
    assert without_native.python(program) == "None\n"


def test_the_same_is_archived_without_the_native_module(
    without_native: SamLocal, emulated: EmulatedAws, uploaded: Any, table: DynamoTable, tmp_path: Path
) -> None:
    other = incarnation(INCARNATION.replace("tracking", "other"))
    text = (ROOT / "events/upload.json").read_text().replace("tracking", "other")
    (record,) = json.loads(text)["Records"]
    emulated.s3.put_object(
        Bucket=BUCKET, Key=json.loads(record["body"])["detail"]["staged"]["key"], Body=SEGMENT.read_bytes()
    )
    event = tmp_path / "event.json"
    event.write_text(text)
    assert without_native.invoke("UploadFunction", event) == HANDLED
    (expected,) = table.log_from_offset(INCARNATION, Offset(0), 10).entries
    (found,) = table.log_from_offset(other, Offset(0), 10).entries
    assert replace(found, key=expected.key) == expected
    bodies = [emulated.s3.get_object(Bucket=BUCKET, Key=one.key)["Body"].read() for one in (found, expected)]
    assert bodies[0] == bodies[1]


def test_a_loss_is_recorded(sam: SamLocal, uploaded: Any, table: DynamoTable) -> None:
    assert sam.invoke("UploadFunction", "lost") == HANDLED
    (loss,) = table.missing(INCARNATION)
    assert (loss.first_offset, loss.next_offset) == (396, 802)
    assert table.gap(INCARNATION, Offset(396)) in {None, Gap(Offset(396), Offset(802), loss.reason)}


@pytest.mark.parametrize("event", EVENTS["ResolverFunction"])
def test_the_resolver_answers_each_of_its_sample_events_as_it_does_in_this_process(
    sam: SamLocal, sharded: ShardMap, here: Callable[[str], Any], event: str
) -> None:
    answer, expected = sam.invoke("ResolverFunction", event), here(event)
    assert answer["statusCode"] == 200
    assert {**answer, "body": unsigned(answer["body"])} == {**expected, "body": unsigned(expected["body"])}


def test_the_ranges_of_a_stream_are_readable(sam: SamLocal, uploaded: Any) -> None:
    read_back(json.loads(sam.invoke("ResolverFunction", "resolver")["body"]))


def test_the_ranges_of_a_sharded_stream_are_readable(sam: SamLocal, sharded: ShardMap) -> None:
    body = json.loads(sam.invoke("ResolverFunction", "super_ranges")["body"])
    archived, unknown = body["partitions"]
    read_back(archived)
    assert unknown["tail"] == {"next_offset": 0}


def test_the_resolver_is_served_as_an_api(sam: SamLocal, sharded: ShardMap, here: Callable[[str], Any]) -> None:
    with sam.api() as url:
        for name in EVENTS["ResolverFunction"]:
            event, expected = sample(name), here(name)
            with urlopen(f"{url}{event['rawPath']}?{event['rawQueryString']}", timeout=60) as response:
                assert response.headers["Content-Type"] == expected["headers"]["Content-Type"]
                assert unsigned(response.read()) == unsigned(expected["body"])
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{url}/ranges?vhost=%2F&name=tracking", timeout=60)
        with refused.value as problem:
            assert problem.code == 400
            assert json.load(problem)["type"] == "urn:coldstream:problem:invalid-query"


def test_the_api_lists_the_jobs(sam: SamLocal, table: DynamoTable) -> None:
    answer = sam.invoke("ApiFunction", "api")
    assert (answer["statusCode"], answer["headers"]["Content-Type"]) == (200, "application/json")
    assert json.loads(answer["body"]).keys() == {"jobs", "cursor"}


def test_the_console_shows_nothing_without_its_tokens(sam: SamLocal, table: DynamoTable) -> None:
    answer = sam.invoke("ConsoleFunction", "console")
    assert (answer["statusCode"], answer["body"]) == (503, "The console is not set up.\n")


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        ("RetentionFunction", {"dry_run": False, "objects": 0, "moved_objects": 0}),  # without a policy
        ("SweepFunction", {"objects": 0, "object_bytes": 0}),
        ("GarbageFunction", {"delete": False, "is_complete": True}),
        ("ScrubFunction", {"complete": True}),
        ("EraseFunction", {"done": 0, "unfinished": 0, "messages": 0}),
    ],
)
def test_the_upkeep_answers_its_schedule(sam: SamLocal, uploaded: Any, function: str, answer: dict[str, Any]) -> None:
    found = sam.invoke(function, "scheduled")
    assert {name: found[name] for name in answer} == answer


def test_the_job_runner_runs_the_job_of_its_message_and_the_tick_finds_nothing_left(
    sam: SamLocal, uploaded: Any, table: DynamoTable
) -> None:
    job_id = job_of(sample("job")["Records"][0]["body"])
    job = Job(job_id, parse_spec({"kind": "scrub", "deep": True, "streams": ["tracking"]}), TimestampMs(1), by="a test")
    table.put_state(StateItem(OPEN_JOBS, job_id, 1, b""), job.to_item())
    assert sam.invoke("JobRunnerFunction", "job") == HANDLED
    done = JobStore(table).get(job_id)
    assert done.state is JobState.SUCCEEDED, done.reason
    assert done.progress.done == done.progress.total == len(table.log_from_offset(INCARNATION, Offset(0), 10).entries)
    assert sam.invoke("JobTickFunction", "scheduled") == {"sent": 0, "started": 0, "followed": 0, "failed": 0}


def sample(event: str) -> Any:
    return json.loads((ROOT / f"events/{event}.json").read_text())


def unsigned(body: str | bytes) -> Any:
    """Return an answer without what changes with time: the signatures of its URLs, and their expiry."""
    answer = json.loads(body)
    for part in (answer, *(one for one in answer.get("partitions", ()) if "ranges" in one)):
        for found in part.get("ranges", ()):
            found["url"] = urlsplit(found["url"])._replace(query="").geturl()
            del found["expires_at"]
    return answer


def read_back(answer: Any) -> None:
    """Check that the URL of an answer grants the chunks of the segment."""
    (found,) = answer["ranges"]
    with urlopen(Request(found["url"], headers={"Range": found["range_header"]}), timeout=30) as response:
        assert response.status == 206
        chunks = decompress_frames(response.read(), found["data_bytes"], source=found["url"], position=0)
        assert SEGMENT.read_bytes().endswith(chunks)
