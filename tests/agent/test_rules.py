"""Which streams are archived."""

from __future__ import annotations

import pytest

from coldstream.agent.rules import Rules


@pytest.mark.parametrize(
    ("rules", "vhost", "name", "is_taken"),
    [
        (Rules(), "/", "orders", True),
        (Rules(include=("orders",)), "/", "orders", True),
        (Rules(include=("orders",)), "/", "orders.eu", False),
        (Rules(include=("orders*", "bills")), "/", "bills", True),
        (Rules(include=("orders*",)), "/", "Orders", False),
        (Rules(exclude=("tmp-*",)), "/", "tmp-1", False),
        (Rules(include=("*",), exclude=("tmp-*",)), "/", "tmp-1", False),
        (Rules(include_vhost=("/",)), "/", "orders", True),
        (Rules(include_vhost=("/",)), "other", "orders", False),
        (Rules(exclude_vhost=("test/*",)), "test/№1", "orders", False),
        (Rules(exclude_vhost=("test*",), include=("orders",)), "prod", "orders", True),
        (Rules(include=("?",)), "/", "é", True),
    ],
)
def test_every_rule_has_to_let_a_stream_pass(rules, vhost, name, is_taken):
    assert rules.takes(vhost, name) is is_taken
