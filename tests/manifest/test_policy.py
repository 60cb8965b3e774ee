"""Which policy is for a stream."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.manifest.entry import StorageClass
from coldstream.manifest.policy import Policy, match
from coldstream.manifest.stream import Incarnation, StreamId


def stream(vhost: str, name: str) -> StreamId:
    return StreamId(vhost, name, Incarnation("x_1763700000000000000"))


@pytest.mark.parametrize(
    ("pattern", "vhost", "name", "matches"),
    [
        ("*/*", "/", "orders", True),
        ("%2F/orders", "/", "orders", True),
        ("%2F/orders", "/", "orders2", False),
        ("%2F/ord*", "/", "orders", True),
        ("eu/*", "us", "orders", False),
        ("*/*", "a/b", "c/d*é", True),
        ("%2F/a%2A", "/", "a*", True),
        ("%2F/a%2A", "/", "abc", False),
        ("%2F/%C3%A9*", "/", "é-1", True),
        ("%2F/a.c", "/", "abc", False),
    ],
)
def test_a_pattern_is_of_both_names_percent_encoded(pattern: str, vhost: str, name: str, *, matches: bool) -> None:
    assert Policy("one", pattern).matches(stream(vhost, name)) == matches


def test_the_greatest_priority_counts_and_then_the_first_name() -> None:
    policies = [Policy("b", "*/*", 1), Policy("a", "*/*", 1), Policy("c", "%2F/orders", 0), Policy("d", "x/*", 9)]
    assert match(policies, stream("/", "orders")) == policies[1]
    assert match(policies[2:], stream("/", "orders")) == policies[2]
    assert match(policies[2:], stream("/", "other")) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"pattern": "orders"},
        {"pattern": "/a/b"},
        {"pattern": "%2/a"},
        {"max_age_ms": -1},
        {"least_messages": -1},
        {"priority": -(1 << 63)},
        {"storage_class": StorageClass.GLACIER},
        {"storage_class_age_ms": 5},
    ],
)
def test_a_policy_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError):
        Policy(**({"name": "one", "pattern": "*/*"} | wrong))
