from __future__ import annotations

import pytest

from coldstream.agent.proof.management import BrokerStream
from coldstream.agent.proof.names import (
    MAX_GUESSES,
    candidates,
    encode_names,
    encoded_names_of,
    guess_names,
    may_encode,
)

TIME = "1763700000000000000"


@pytest.mark.parametrize(
    ("vhost", "name", "text"),
    [
        ("/", "orders", "__orders"),
        ("shop", "orders-EU=1", "shop_orders-EU=1"),
        ("grün/1", "über stream", "gr__n_1___ber_stream"),
        ("/", "注文", "_" + "_" + "_" * 6),
        # A line break of two characters is one grapheme, and so one "_"; each alone is one, too.
        ("/", "a\r\nb", "__a_b"),
        ("/", "a\rb\nc\n\rd", "__a_b_c__d"),
    ],
)
def test_names_are_written_as_the_broker_writes_them(vhost: str, name: str, text: str) -> None:
    assert encode_names(vhost, name) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("é", "_"),
        ("e\u0301x", "_x"),
        ("a👩\u200d👧b", "a_b"),
        ("🇩🇪", "_"),
        ("a🏽", "_"),
        ("1\ufe0f\u20e32", "_2"),
        ("한", "_"),
        ("über: 注文\t*", "_ber______"),
        ("é", "__"),
        ("e\u0301x", "e__x"),
        ("\u06001", "_"),
    ],
)
def test_names_of_other_than_ascii_are_known_as_each_release_writes_them(name: str, text: str) -> None:
    assert may_encode(f"__{text}", "/", name)
    assert candidates(f"__{text}_{TIME}", [BrokerStream("/", name)]) == [("/", name)]


@pytest.mark.parametrize(
    ("name", "text"),
    [("orders.eu", "orders__eu"), ("a\r\nb", "a__b"), ("übeR", "_ber"), ("é", "_____"), ("ab\u0301", "ac")],
)
def test_names_that_cannot_be_written_so_are_not_known(name: str, text: str) -> None:
    assert not may_encode(f"__{text}", "/", name)


def test_a_known_stream_that_is_written_so_is_the_candidate() -> None:
    known = [BrokerStream("/", "orders"), BrokerStream("/", "orders.eu"), BrokerStream("eu", "orders")]
    assert candidates(f"__orders_eu_{TIME}", known) == [("/", "orders.eu")]


def test_known_streams_that_are_written_alike_are_all_candidates() -> None:
    known = [BrokerStream("a", "b.c"), BrokerStream("a.b", "c"), BrokerStream("a", "b c"), BrokerStream("a", "b")]
    assert candidates(f"a_b_c_{TIME}", known) == [("a", "b.c"), ("a.b", "c"), ("a", "b c")]


def test_streams_that_are_written_otherwise_are_no_candidates() -> None:
    assert candidates(f"__orders_{TIME}", [BrokerStream("/", "invoices")]) == []


def test_a_leading_underscore_is_likeliest_the_default_vhost() -> None:
    assert next(iter(guess_names(f"__orders_{TIME}").items())) == ("/", ["orders"])


def test_every_underscore_may_end_the_vhost_and_stand_for_a_dot() -> None:
    assert guess_names(f"a_b_c_{TIME}") == {"a": ["b_c", "b.c"], "a_b": ["c"]}


def test_a_vhost_may_begin_with_a_slash() -> None:
    assert "orders" in guess_names(f"_prod_orders_{TIME}")["/prod"]


def test_a_name_of_digits_is_no_time() -> None:
    assert guess_names(f"__1763700000000000000_{TIME}") == {"/": ["1763700000000000000"]}


def test_guesses_are_bounded_and_differ() -> None:
    found = [(vhost, name) for vhost, names in guess_names("_" * 200 + f"_{TIME}").items() for name in names]
    assert len(found) <= MAX_GUESSES
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("directory", ["orders", "", "__orders_12", f"_{TIME}", "pins", f"__a_{TIME}x"])
def test_a_directory_that_is_not_a_streams_has_no_names(directory: str) -> None:
    assert encoded_names_of(directory) is None
    assert candidates(directory, [BrokerStream("/", "orders")]) == []
    assert guess_names(directory) == {}


def test_guesses_have_a_vhost_and_a_name() -> None:
    assert all(vhost and all(names) for vhost, names in guess_names(f"____a__b____{TIME}").items())
