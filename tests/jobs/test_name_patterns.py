"""Names and patterns of streams, as jobs give them."""

from __future__ import annotations

import random
import re

import pytest

from coldstream.jobs.name_patterns import NamePatterns, is_match


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*", "", True),
        ("*", "orders", True),
        ("?", "", False),
        ("?", "ö", True),
        ("orders-*", "orders-1", True),
        ("orders-*", "orders-", True),
        ("orders-*", "order", False),
        ("o*s", "orders", True),
        ("o*s", "orders2", False),
        ("**a**", "bab", True),
        ("[ab]*", "a", False),
        ("[ab]*", "[ab]c", True),
        ("a?c", "a\nc", True),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern: str, name: str, expected: bool) -> None:  # noqa: FBT001
    assert is_match(pattern, name) is expected


def test_patterns_match_what_regular_expressions_do() -> None:
    rng = random.Random(7)
    for _ in range(5000):
        pattern = "".join(rng.choice("ab*?") for _ in range(rng.randrange(8)))
        name = "".join(rng.choice("ab") for _ in range(rng.randrange(8)))
        expression = "".join({"*": ".*", "?": "."}.get(one, one) for one in pattern)
        assert is_match(pattern, name) == (re.fullmatch(expression, name) is not None), (pattern, name)


def test_many_stars_take_no_time() -> None:
    assert not is_match("*a" * 120 + "*b", "a" * 255)


def test_names_and_patterns_are_told_apart() -> None:
    found = NamePatterns.of(["b", "a*", "b", "a*", "?"])
    assert found == NamePatterns(("b",), ("a*", "?"))
    assert found.pattern_of("ax") == "a*"
    assert found.pattern_of("x") == "?"
    assert found.pattern_of("xy") is None
