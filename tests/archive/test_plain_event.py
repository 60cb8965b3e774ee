"""Events read without their schema: as the schema reads them, or by it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.archive import events
from coldstream.archive.envelope import VERSION
from coldstream.archive.plain_event import read_event
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import MAX_CUT_EVERY_MS, MAX_SEGMENT_BYTES, MIN_CUT_EVERY_MS, SegmentRolled
from coldstream.errors import InvalidEventError
from coldstream.manifest.cluster import Cluster
from coldstream.units import MAX_OFFSET
from tests.archive.test_events import envelope, lost, rolled

GOOD: list[SegmentRolled | SegmentLost] = [
    rolled(),
    rolled("größe", "заказы/№1"),
    rolled('\x00"\\\n', "x" * 255, next_offset=MAX_OFFSET),
    replace(rolled(), size_bytes=MAX_SEGMENT_BYTES, cut_every_ms=MIN_CUT_EVERY_MS, etag="e"),
    replace(rolled(), cut_every_ms=MAX_CUT_EVERY_MS, etag="ü" * 255, cluster=Cluster("eu-1")),
    lost(),
    replace(lost(reason="é" * 500), unseen=True, cluster=Cluster("eu")),
]

PATHS = [
    ("source",),
    ("detail-type",),
    ("detail",),
    ("detail", "version"),
    ("detail", "stream"),
    ("detail", "stream", "vhost"),
    ("detail", "stream", "name"),
    ("detail", "stream", "incarnation"),
    ("detail", "segment"),
    ("detail", "segment", "first_offset"),
    ("detail", "segment", "next_offset"),
    ("detail", "segment", "size_bytes"),
    ("detail", "segment", "cut_every_ms"),
    ("detail", "staged"),
    ("detail", "staged", "bucket"),
    ("detail", "staged", "key"),
    ("detail", "staged", "etag"),
    ("detail", "lost"),
    ("detail", "lost", "first_offset"),
    ("detail", "lost", "next_offset"),
    ("detail", "reason"),
    ("detail", "unseen"),
    ("detail", "extra"),
]

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 999, 1.0, 1e400, 2**32, 2**32 + 1, MAX_OFFSET, MAX_OFFSET + 1),
    *("", "1", "x", "x\n", "x" * 255, "x" * 256, "é" * 501, "\ud800", [], [1], {}, {"version": VERSION}),
    *("coldstream.agent", "coldstream.agent.eu", "coldstream.agent.direct", "Segment Rolled", "Segment Lost"),
]


def outcome(read: Any, body: str) -> str:
    try:
        return repr(read(body))
    except InvalidEventError as err:
        return f"{type(err).__name__}: {err}"


@pytest.mark.parametrize("event", GOOD, ids=repr)
def test_what_agents_write_is_read_without_the_schema(
    monkeypatch: pytest.MonkeyPatch, event: SegmentRolled | SegmentLost
) -> None:
    def refuse(_: str) -> SegmentRolled:
        pytest.fail("the schema was asked")

    monkeypatch.setattr(events, "event_of", refuse)
    assert read_event(json.dumps(envelope(event))) == event


@given(
    event=st.sampled_from(GOOD),
    changes=st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(VALUES)), max_size=2),
)
def test_an_event_with_any_field_changed_is_to_both_the_same(
    event: SegmentRolled | SegmentLost, changes: list[tuple[tuple[str, ...], Any]]
) -> None:
    changed = envelope(event)
    for (*parents, last), value in changes:
        target: Any = changed
        for parent in parents:
            target = target.get(parent) if isinstance(target, dict) else None
        if isinstance(target, dict):
            target[last] = value
    body = json.dumps(changed)
    assert outcome(read_event, body) == outcome(events.event_of, body)


@pytest.mark.parametrize("event", [GOOD[3], GOOD[6]], ids=["rolled", "lost"])
def test_an_event_without_any_one_field_is_to_both_the_same(event: SegmentRolled | SegmentLost) -> None:
    for *parents, last in PATHS:
        changed = envelope(event)
        target: Any = changed
        for parent in parents:
            target = target.get(parent, {})
        target.pop(last, None)
        body = json.dumps(changed)
        assert outcome(read_event, body) == outcome(events.event_of, body)


@pytest.mark.parametrize("body", ["", "null", "[]", '"text"', "1", "{}", "NaN", "[" * 100_000, "1" * 5000])
def test_what_is_no_event_is_refused_in_the_words_of_the_schema(body: str) -> None:
    assert outcome(read_event, body) == outcome(events.event_of, body)
