"""AMQP values as JSON."""

from __future__ import annotations

import json
import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.sections import Header, Properties
from coldstream.format.amqp.types import Char, Decimal, Described, Symbol, Timestamp

SOME_UUID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**64 - 1, 2**64 - 1),
        (0.5, 0.5),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ("grün", "grün"),
        (Symbol("text/plain"), "text/plain"),
        (Char("😀"), "😀"),
        ("grün".encode(), "grün"),
        (b"\xff\x00", {"base64": "/wA="}),
        (SOME_UUID, str(SOME_UUID)),
        (Timestamp(1_763_700_000_123), "2025-11-21T04:40:00.123Z"),
        (Timestamp(2**63 - 1), "9223372036854775807"),
        (Decimal(b"\x22\x40\x00\x0a"), {"decimal": "2240000a"}),
        (Described(Symbol("x:point"), [1, 2]), {"descriptor": "x:point", "value": [1, 2]}),
        ((1, b"\xff"), [1, {"base64": "/w=="}]),
        ({"a": {Symbol("b"): b"c"}}, {"a": {"b": "c"}}),
        ({1: "a", "b": None}, [[1, "a"], ["b", None]]),
        ((([], 1), (None, 2)), [[[], 1], [None, 2]]),
        (Header(durable=False, ttl=5), {"durable": False, "ttl": 5}),
        (Properties(correlation_id=SOME_UUID, subject=""), {"subject": "", "correlation_id": str(SOME_UUID)}),
    ],
)
def test_a_value_of_each_type(value, expected):
    found = to_json(value)
    assert (type(found), found) == (type(expected), expected)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.uuids()
KEYS = st.text() | st.integers() | st.binary()


@given(st.recursive(LEAVES, lambda values: st.lists(values) | st.dictionaries(KEYS, values), max_leaves=20))
def test_whatever_comes_out_is_strict_json(value):
    found = to_json(value)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
