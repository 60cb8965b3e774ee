"""What a job may be: every kind with its fields, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.sealing import sealed
from coldstream.jobs.specs import SPECS, EraseSpec, JobKind, edited, parse_spec, spec_to_dict

TARGET = {"type": "stream", "name": "orders-again"}
LEAST: dict[JobKind, dict[str, Any]] = {
    JobKind.STORE: {"streams": ["orders*"]},
    JobKind.LOAD: {"streams": ["orders"], "target": TARGET},
    JobKind.COMPACT: {},
    JobKind.SCRUB: {},
    JobKind.ERASE: {"stream": "orders", "offsets": "5:9", "reason": "ticket 4711"},
    JobKind.EXPORT: {"streams": ["orders"], "destination": "/tmp/orders"},
    JobKind.RETENTION: {},
}


@pytest.mark.parametrize("kind", JobKind)
def test_each_kind_is_read_back_as_it_was_written(kind: JobKind) -> None:
    spec = parse_spec({"kind": kind.value, **LEAST[kind]})
    assert isinstance(spec, SPECS[kind])
    assert parse_spec(spec_to_dict(spec)) == spec


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "kind"),
        ({"kind": "copy"}, "kind"),
        ({"kind": "load", "streams": ["orders"]}, "target"),
        ({"kind": "load", "streams": ["orders"], "target": {"type": "queue"}}, "target.type"),
        ({"kind": "load", "streams": ["orders"], "target": {**TARGET, "nmae": "x"}}, "target.nmae"),
        ({"kind": "load", "streams": ["orders"], "target": TARGET, "start": "soon"}, "start"),
        ({"kind": "load", "streams": ["orders"], "target": TARGET, "end": "last"}, "end"),
        ({"kind": "load", "streams": ["orders"], "target": TARGET, "rate": 0}, "rate"),
        ({"kind": "load", "streams": ["orders"], "target": TARGET, "rate": "fast"}, "rate"),
        ({"kind": "store", "streams": []}, "streams"),
        ({"kind": "store", "streams": [""]}, "streams.0"),
        ({"kind": "store", "streams": ["x"] * 1001}, "streams"),
        ({"kind": "retention", "schedule": "sometimes"}, "schedule"),
        ({"kind": "retention", "schedule": "every 3s"}, "schedule"),
        ({"kind": "retention", "schedule": "0 0 31 2 *"}, "schedule"),
        ({"kind": "retention", "bogus": 1}, "bogus"),
        ({"kind": "retention", "name": "a\x1b[2J"}, "name"),
        ({"kind": "retention", "max_attempts": 0}, "max_attempts"),
        ({"kind": "compact", "target_size": "1KiB"}, "target_size"),
        ({"kind": "compact", "target_size": "5GiB"}, "target_size"),
        ({"kind": "scrub", "max_read": "much"}, "max_read"),
        ({"kind": "scrub", "max_read": "1KiB"}, "max_read"),
        ({"kind": "scrub", "max_requests": 99}, "max_requests"),
        ({"kind": "erase", "stream": "orders", "offsets": "9:9", "reason": "x"}, "offsets"),
        ({"kind": "erase", "stream": "orders", "offsets": "1-5", "reason": "x"}, "offsets"),
        ({"kind": "erase", "stream": "orders", "properties": ["user_id=x"], "reason": "x"}, "properties.0"),
        ({"kind": "erase", "stream": "orders", "properties": ["properties.bogus=x"], "reason": "x"}, "properties.0"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        parse_spec(given)
    assert raised.value.field == field


def test_fields_that_can_change_are_edited_and_others_are_not() -> None:
    spec = parse_spec({"kind": "load", **LEAST[JobKind.LOAD]})
    assert edited(spec, {"rate": 5.0, "end": "1000"}).rate == 5.0  # type: ignore[union-attr]
    with pytest.raises(InvalidInputError, match="these can: "):
        edited(spec, {"start": "5"})
    with pytest.raises(InvalidInputError, match="rate"):
        edited(spec, {"rate": -1})


def test_the_values_of_an_erasure_are_stored_as_digests_alone() -> None:
    given = {**LEAST[JobKind.ERASE], "key": "alice", "properties": ["properties.user_id=alice@example.com"]}
    spec = sealed(parse_spec({"kind": "erase", **given}))
    assert isinstance(spec, EraseSpec)
    assert "alice" not in str(spec_to_dict(spec))
    assert spec.selection is not None


def test_an_erasure_that_selects_nothing_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="offsets"):
        sealed(parse_spec({"kind": "erase", "stream": "orders", "reason": "x"}))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"properties": ["no_such_field=x"]}, "properties"),
        ({"key": "\ud800"}, "key"),
        ({"filter_value": "\udfff"}, "filter_value"),
    ],
)
def test_a_condition_of_an_erasure_that_cannot_be_names_the_field_of_the_job(
    fields: dict[str, Any], field: str
) -> None:
    spec = EraseSpec.model_construct(kind=JobKind.ERASE, stream="orders", reason="x", offsets=None, **fields)
    with pytest.raises(InvalidInputError) as raised:
        sealed(spec)
    assert (type(raised.value), raised.value.field) == (InvalidInputError, field)


@pytest.mark.parametrize(
    "text",
    ["properties.user_id=x", "properties.message-id=", "application_properties.a.b=c=d", "message_annotations.ü=\n"],
)
def test_a_property_that_an_erasure_understands_is_taken(text: str) -> None:
    spec = parse_spec({"kind": "erase", "stream": "orders", "properties": [text], "reason": "x"})
    stored = sealed(spec)
    assert isinstance(stored, EraseSpec)
    assert stored.properties == ()
    assert stored.selection is not None
