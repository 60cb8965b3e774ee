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
    ("given", "field"), [({"properties": ["user=alice"]}, "properties"), ({"selection": "{}"}, "selection")]
)
def test_what_is_wrong_with_the_conditions_of_an_erasure_is_named_without_its_value(
    given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        sealed(parse_spec({"kind": "erase", **LEAST[JobKind.ERASE], **given}))
    assert raised.value.field == field
    assert "alice" not in str(raised.value)
