"""The agent's events, encoded as JSON and decoded."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from coldstream.archive.envelope import source_of
from coldstream.archive.events import StreamDetail, detail_of, event_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import InvalidEventError
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import MAX_OFFSET, Offset
from scripts.generate import SCHEMAS, schema_of

ROOT = Path(__file__).parents[2]


def rolled(vhost: str = "/", name: str = "orders", next_offset: int = 1000) -> SegmentRolled:
    stream = StreamId(vhost, name, Incarnation("__orders_1763700000000000000"))
    return SegmentRolled(stream, Offset(0), Offset(next_offset), 4096, "bucket", "staging/x.segment")


def lost(vhost: str = "/", name: str = "orders", reason: str = "the disk was full") -> SegmentLost:
    return SegmentLost(rolled(vhost, name).stream, Offset(10), Offset(MAX_OFFSET), reason)


def envelope(event: SegmentRolled | SegmentLost) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "7bf73129-1428-4cd3-a780-95db273d1602",
        "detail-type": "Segment Rolled" if isinstance(event, SegmentRolled) else "Segment Lost",
        "source": source_of(event.cluster),
        "account": "123456789012",
        "time": "2026-11-21T09:30:00Z",
        "region": "eu-central-1",
        "resources": [],
        "detail": json.loads(detail_of(event)),
    }


@pytest.mark.parametrize(
    ("vhost", "name"), [("/", "orders"), ("größe", "заказы/№1"), ("a b", '\x00"\\\n'), ("🐇", "x" * 255)]
)
def test_an_event_comes_back_as_it_was_written(vhost: str, name: str) -> None:
    events = [rolled(vhost, name), replace(rolled(vhost, name), cut_every_ms=20_000), lost(vhost, name, name)]
    events.append(replace(lost(vhost, name), unseen=True))
    for event in events:
        assert event_of(json.dumps(envelope(event))) == event


@pytest.mark.parametrize("name", ["eu", "eu-1", "A" * 63])
def test_the_cluster_of_an_event_is_in_its_source_which_aws_holds_agents_to(name: str) -> None:
    for event in (replace(rolled(), cluster=Cluster(name)), replace(lost(), cluster=Cluster(name))):
        assert envelope(event)["source"] == f"coldstream.agent.{name}"
        assert name not in detail_of(event)
        assert event_of(json.dumps(envelope(event))) == event


def test_the_copy_of_an_event_comes_back_as_it_was_written() -> None:
    event = replace(rolled(), etag='"9b2cf535f27731c974343645a3985328-12"')
    assert json.loads(detail_of(event))["staged"]["etag"] == event.etag
    assert event_of(json.dumps(envelope(event))) == event


def test_an_event_without_time_borders_is_written_as_before_there_were_any() -> None:
    assert detail_of(rolled()) == (
        '{"version":1,"stream":{"vhost":"/","name":"orders","incarnation":"__orders_1763700000000000000"},'
        '"segment":{"first_offset":0,"next_offset":1000,"size_bytes":4096},'
        '"staged":{"bucket":"bucket","key":"staging/x.segment"}}'
    )


def test_a_loss_is_written_as_its_schema_says() -> None:
    assert detail_of(lost(reason="größer")) == (
        '{"version":1,"stream":{"vhost":"/","name":"orders","incarnation":"__orders_1763700000000000000"},'
        '"lost":{"first_offset":10,"next_offset":18446744073709551615},"reason":"größer"}'
    )


def test_offsets_of_64_bits_are_exact() -> None:
    assert event_of(json.dumps(envelope(rolled(next_offset=MAX_OFFSET)))).next_offset == 2**64 - 1


def broken(path: str, value: Any, of: SegmentRolled | SegmentLost | None = None) -> str:
    event = deepcopy(envelope(of or rolled()))
    *parents, last = path.split(".")
    target = event
    for parent in parents:
        target = target[parent]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return json.dumps(event)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("source", "somebody.else", "source"),
        ("source", "eu", "source"),
        ("source", "coldstream.agent.", "source"),
        ("source", "coldstream.agents", "source"),
        ("source", "coldstream.agent.a.b", "source"),
        ("source", "coldstream.agent.a_b", "source"),
        ("source", "coldstream.agent.eu ", "source"),
        ("source", ["coldstream.agent"], "source"),
        ("source", None, "source"),
        ("detail.staged.etag", "", "detail.staged.etag"),
        ("detail.staged.etag", "x" * 256, "detail.staged.etag"),
        ("detail.staged.etag", 7, "detail.staged.etag"),
        ("detail-type", "Segment Deleted", "detail-type"),
        ("detail", None, "detail"),
        ("detail", [1], "detail"),
        ("detail.version", 2, "detail.version"),
        ("detail.version", None, "detail.version"),
        ("detail.stream.vhost", None, "detail.stream.vhost"),
        ("detail.stream.vhost", "", "detail.stream: vhost"),
        ("detail.stream.name", "x" * 256, "detail.stream: stream name"),
        ("detail.stream.name", "\ud800", "detail.stream"),
        ("detail.stream.incarnation", "../../etc", "detail.stream.incarnation"),
        ("detail.stream.incarnation", "", "detail.stream.incarnation"),
        ("detail.segment.first_offset", "0", "detail.segment.first_offset"),
        ("detail.segment.first_offset", -1, "detail.segment.first_offset"),
        ("detail.segment.first_offset", 1.5, "detail.segment.first_offset"),
        ("detail.segment.first_offset", 1000, "segment"),
        ("detail.segment.next_offset", 2**64, "detail.segment.next_offset"),
        ("detail.segment.next_offset", True, "detail.segment.next_offset"),
        ("detail.segment.size_bytes", 0, "detail.segment.size_bytes"),
        ("detail.segment.extra", 1, "detail.segment.extra"),
        ("detail.segment.cut_every_ms", 999, "detail.segment.cut_every_ms"),
        ("detail.segment.cut_every_ms", 24 * 3600 * 1000 + 1, "detail.segment.cut_every_ms"),
        ("detail.segment.cut_every_ms", "20000", "detail.segment.cut_every_ms"),
        ("detail.segment.cut_every_ms", 2.5e4, "detail.segment.cut_every_ms"),
        ("detail.segment.cut_every_ms", True, "detail.segment.cut_every_ms"),
        ("detail.staged.key", 7, "detail.staged.key"),
        ("detail.staged", None, "detail.staged"),
    ],
)
def test_an_event_outside_the_schema_is_refused_by_its_field(path: str, value: Any, field: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        event_of(broken(path, value))
    assert caught.value.field.startswith(field)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("detail-type", "Segment Rolled", "detail.segment"),
        ("detail.version", 2, "detail.version"),
        ("detail.stream.name", "", "detail.stream: stream name"),
        ("detail.lost", None, "detail.lost"),
        ("detail.lost.first_offset", -1, "detail.lost.first_offset"),
        ("detail.lost.next_offset", 10, "lost"),
        ("detail.lost.next_offset", 2**64, "detail.lost.next_offset"),
        ("detail.lost.size_bytes", 1, "detail.lost.size_bytes"),
        ("detail.unseen", False, "detail.unseen"),
        ("detail.reason", None, "detail.reason"),
        ("detail.reason", "", "detail.reason"),
        ("detail.reason", 7, "detail.reason"),
        ("detail.reason", "x" * 1001, "detail.reason"),
        ("detail.reason", "é" * 501, "reason"),
        ("detail.reason", "\ud800", ""),
    ],
)
def test_a_loss_outside_the_schema_is_refused_by_its_field(path: str, value: Any, field: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        event_of(broken(path, value, lost()))
    assert caught.value.field.startswith(field)


def test_an_event_cut_short_anywhere_is_refused() -> None:
    for event in (rolled(), lost()):
        text = json.dumps(envelope(event))
        for length in range(len(text)):
            with pytest.raises(InvalidEventError):
                event_of(text[:length])


@pytest.mark.parametrize("body", ["null", "[]", '"text"', "1", "{}", "[" * 100_000, "1" * 5000])
def test_json_that_is_no_envelope_is_refused(body: str) -> None:
    with pytest.raises(InvalidEventError):
        event_of(body)


def test_half_of_a_character_is_refused_as_no_item_and_no_key_can_hold_it() -> None:
    event = envelope(lost())
    event["detail"]["reason"] = "\ud800"
    with pytest.raises(InvalidEventError, match=r"detail\.reason"):
        event_of(json.dumps(event))
    for name in ("bucket", "key", "etag"):
        event = envelope(rolled())
        event["detail"]["staged"][name] = "\ud800"
        with pytest.raises(InvalidEventError, match=rf"detail\.staged\.{name}"):
            event_of(json.dumps(event))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_committed_schema_is_what_the_code_says(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == schema_of(SCHEMAS[name])


def test_what_was_decoded_cannot_be_changed() -> None:
    names = StreamDetail(vhost="/", name="orders", incarnation="x")
    with pytest.raises(ValidationError, match="frozen"):
        names.name = "other"
