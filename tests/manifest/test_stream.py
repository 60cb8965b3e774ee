from __future__ import annotations

import pytest

from coldstream.errors import InvalidNameError
from coldstream.manifest.stream import Incarnation, StreamId, incarnation, stream_from_directory

LIFE = Incarnation("__orders_1763700000000000000")


@pytest.mark.parametrize("text", [LIFE, "a", "A-Z_a=z09", "x" * 255])
def test_an_incarnation_is_text_of_the_brokers_alphabet(text: str) -> None:
    assert incarnation(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a.b", "a b", "a\n", "a#b", "é", "\0", "x" * 256, "../x"])
def test_anything_else_is_no_incarnation(text: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        incarnation(text)
    assert caught.value.field == "incarnation"


@pytest.mark.parametrize("name", ["a", "/", "#", "\0", " ", "Öl/水#", "x" * 255, "é" * 127, "🐇" * 63])
def test_a_name_is_any_text_of_up_to_255_bytes(name: str) -> None:
    assert StreamId(name, name, LIFE).name == name


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "\ud800"])
def test_a_name_that_amqp_cannot_carry_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        StreamId("/", name, LIFE)
    assert caught.value.field == "stream name"
    with pytest.raises(InvalidNameError) as caught:
        StreamId(name, "orders", LIFE)
    assert caught.value.field == "vhost"


def test_a_stream_of_an_impossible_incarnation_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        StreamId("/", "orders", Incarnation("../orders"))


@pytest.mark.parametrize(
    ("directory", "vhost", "name"),
    [
        ("__orders_1763700000000000000", "/", "orders"),
        ("__my_orders_2_1763700000000000000", "/", "my_orders_2"),
        ("prod_orders_1763700000000000000", "prod", "orders"),
        ("prod_orders_eu_1763700000000000000", "prod", "orders_eu"),
        ("prod_2025_1763700000000000000", "prod", "2025"),
        ("____1763700000000000000", "/", "_"),
    ],
)
def test_the_likeliest_names_are_read_off_a_directory(directory: str, vhost: str, name: str) -> None:
    assert stream_from_directory(directory) == StreamId(vhost, name, Incarnation(directory))


def test_names_that_the_caller_knows_are_taken() -> None:
    life = Incarnation("a_b__rders_1763700000000000000")
    assert stream_from_directory(life, vhost="a/b", name="örders") == StreamId("a/b", "örders", life)


@pytest.mark.parametrize(
    ("directory", "vhost", "name"),
    [
        ("a_b_orders_1763700000000000000", "a_b", "orders"),
        ("a_b_orders_1763700000000000000", "a/b", "orders"),
        ("a_b_orders_1763700000000000000", "a", "b_orders"),
        ("___orders_1763700000000000000", "é", "orders"),
        ("__orders_1763700000000000000", "/", "orders"),
    ],
)
def test_a_known_vhost_says_where_the_name_begins(directory: str, vhost: str, name: str) -> None:
    assert stream_from_directory(directory, vhost=vhost) == StreamId(vhost, name, Incarnation(directory))


@pytest.mark.parametrize(
    ("directory", "name", "vhost"),
    [
        ("a_b_orders_1763700000000000000", "orders", "a_b"),
        ("a_b_orders_1763700000000000000", "b/orders", "a"),
        ("____rders_1763700000000000000", "örders", "/"),
        ("__orders_1763700000000000000", "orders", "/"),
    ],
)
def test_a_known_name_says_where_the_vhost_ends(directory: str, name: str, vhost: str) -> None:
    assert stream_from_directory(directory, name=name) == StreamId(vhost, name, Incarnation(directory))


@pytest.mark.parametrize(
    "directory",
    [
        "",
        "orders",
        "_1763700000000000000",
        "__1763700000000000000",
        "___1763700000000000000",
        "__orders_176370",
        "a/b_1763700000000000000",
    ],
)
def test_a_directory_without_two_names_and_a_time_is_none_of_a_stream(directory: str) -> None:
    with pytest.raises(InvalidNameError):
        stream_from_directory(directory)


@pytest.mark.parametrize("known", [{"vhost": "a" * 50}, {"name": "a" * 50}, {"vhost": "\ud800" * 9}])
def test_a_known_name_that_does_not_fit_is_refused(known: dict[str, str]) -> None:
    with pytest.raises(InvalidNameError):
        stream_from_directory("__orders_1763700000000000000", **known)
