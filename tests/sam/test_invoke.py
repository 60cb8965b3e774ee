"""The functions in Docker with the built layer, under AWS's runtime interface emulator, called with sample events."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import incarnation
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.support.golden import GOLDEN
from tests.support.sam import BUCKET, EVENTS, ROOT, TABLE, EmulatedAws, SamLocal

LIFE = incarnation("__tracking_1795227881250770221")
SEGMENT = GOLDEN / LIFE / "00000000000000000000.segment"
HANDLED: dict[str, Any] = {"batchItemFailures": []}


@pytest.fixture(scope="module")
def uploaded(sam: SamLocal) -> Any:
    """What the upload function answered to its first event."""
    return sam.invoke("UploadFunction", "upload")


@pytest.fixture
def table(emulated: EmulatedAws, monkeypatch: pytest.MonkeyPatch) -> DynamoTable:
    for name, value in emulated.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return DynamoTable(TABLE)


def test_every_function_of_the_template_has_sample_events() -> None:
    listed = sorted(f"{event}.json" for events in EVENTS.values() for event in events)
    assert listed == sorted(path.name for path in (ROOT / "events").glob("*.json"))


def test_the_announced_segment_is_archived(
    sam: SamLocal, emulated: EmulatedAws, uploaded: Any, table: DynamoTable
) -> None:
    assert uploaded == HANDLED
    (entry,) = table.log_from_offset(LIFE, Offset(0), 10).entries
    assert (entry.first_offset, entry.next_offset) == (0, 396)
    body = emulated.s3.get_object(Bucket=BUCKET, Key=entry.key)["Body"].read()
    assert body[: entry.data_bytes + 8] == SEGMENT.read_bytes()
    left = emulated.s3.list_objects_v2(Bucket=BUCKET, Prefix="staging/")
    assert left["KeyCount"] == 0


def test_the_same_event_again_changes_nothing(sam: SamLocal, uploaded: Any, table: DynamoTable) -> None:
    before = table.head(LIFE)
    assert sam.invoke("UploadFunction", "upload") == HANDLED
    assert table.head(LIFE) == before


def test_a_loss_is_written_down(sam: SamLocal, uploaded: Any, table: DynamoTable) -> None:
    assert sam.invoke("UploadFunction", "lost") == HANDLED
    (loss,) = table.missing(LIFE)
    assert (loss.first_offset, loss.next_offset) == (396, 802)
    assert table.gap(LIFE, Offset(396)) in {None, Gap(Offset(396), Offset(802), loss.reason)}


def test_the_resolver_answers_its_sample_event(sam: SamLocal, uploaded: Any) -> None:
    answer = sam.invoke("ResolverFunction", "resolver")
    assert answer["statusCode"] == 200
    read_back(json.loads(answer["body"]))


def test_the_resolver_is_served_as_an_api(sam: SamLocal, uploaded: Any) -> None:
    with sam.api() as url:
        with urlopen(f"{url}/ranges?vhost=%2F&name=tracking&offset=0", timeout=60) as response:
            read_back(json.load(response))
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{url}/ranges?vhost=%2F&name=tracking", timeout=60)
        with refused.value as problem:
            assert problem.code == 400
            assert json.load(problem)["type"] == "urn:coldstream:problem:invalid-query"


def read_back(body: Any) -> None:
    """Check that the URL of an answer grants the chunks of the segment."""
    (found,) = body["ranges"]
    with urlopen(Request(found["url"], headers={"Range": found["range_header"]}), timeout=30) as response:
        assert response.status == 206
        assert SEGMENT.read_bytes().endswith(response.read())
