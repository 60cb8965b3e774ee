from __future__ import annotations

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.gateway.gap_rules import GapAction, GapRules


def test_without_a_word_a_gap_is_an_error() -> None:
    assert GapRules.parse([]).action("orders") is GapAction.ERROR


def test_the_first_pattern_that_matches_decides_and_one_without_is_for_all_others() -> None:
    rules = GapRules.parse(["orders-eu=error", "skip", "orders*=skip", "a=b*=skip", "error"])
    assert rules.action("orders-eu") is GapAction.ERROR
    assert rules.action("orders-us") is GapAction.SKIP
    assert rules.action("a=b/заказы") is GapAction.SKIP
    assert rules.action("other") is GapAction.ERROR


@pytest.mark.parametrize("text", ["", "stop", "orders=", "=skip", "orders=SKIP"])
def test_another_word_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettingError, match="--on-gap"):
        GapRules.parse([text])
