"""The event `Segment Rolled`, to JSON and back."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import InvalidEventError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.runtime.events import detail_of, segment_of
from coldstream.units import MAX_OFFSET, Offset
from scripts.generate import segment_rolled_schema

ROOT = Path(__file__).parents[2]


def rolled(vhost: str = "/", name: str = "orders", next_offset: int = 1000) -> SegmentRolled:
    stream = StreamId(vhost, name, Incarnation("__orders_1763700000000000000"))
    return SegmentRolled(stream, Offset(0), Offset(next_offset), 4096, "bucket", "staging/x.segment")


def envelope(segment: SegmentRolled) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "7bf73129-1428-4cd3-a780-95db273d1602",
        "detail-type": "Segment Rolled",
        "source": "coldstream.agent",
        "account": "123456789012",
        "time": "2026-11-21T09:30:00Z",
        "region": "eu-central-1",
        "resources": [],
        "detail": json.loads(detail_of(segment)),
    }


@pytest.mark.parametrize(
    ("vhost", "name"), [("/", "orders"), ("größe", "заказы/№1"), ("a b", '\x00"\\\n'), ("🐇", "x" * 255)]
)
def test_an_event_comes_back_as_it_was_written(vhost: str, name: str) -> None:
    segment = rolled(vhost, name)
    assert segment_of(json.dumps(envelope(segment))) == segment


def test_offsets_of_64_bits_are_exact() -> None:
    segment = rolled(next_offset=MAX_OFFSET)
    assert segment_of(json.dumps(envelope(segment))).next_offset == 2**64 - 1


def broken(path: str, value: Any) -> str:
    event = deepcopy(envelope(rolled()))
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
        ("detail.staged.key", 7, "detail.staged.key"),
        ("detail.staged", None, "detail.staged"),
    ],
)
def test_what_is_not_of_the_schema_is_refused_by_its_field(path: str, value: Any, field: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        segment_of(broken(path, value))
    assert caught.value.field.startswith(field)


def test_an_event_cut_short_anywhere_is_refused() -> None:
    text = json.dumps(envelope(rolled()))
    for length in range(len(text)):
        with pytest.raises(InvalidEventError):
            segment_of(text[:length])


@pytest.mark.parametrize("body", ["null", "[]", '"text"', "1", "{}", "[" * 100_000, "1" * 5000])
def test_json_that_is_no_envelope_is_refused(body: str) -> None:
    with pytest.raises(InvalidEventError):
        segment_of(body)


def test_the_committed_schema_is_what_the_code_says() -> None:
    assert (ROOT / "docs/segment-rolled.schema.json").read_text() == segment_rolled_schema()
