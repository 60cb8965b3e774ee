"""Which queries are read without Powertools; tests/functions/test_resolver.py compares their answers."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest

from coldstream.errors import InvalidQueryError
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.resolve.answer import Bounds, Continue, RangesQuery
from coldstream.runtime.query import plain_query
from coldstream.units import Offset

PLAIN = {"vhost": "/", "name": "orders", "spec": "first"}


def event(
    parameters: dict[str, str] | None, path: str = "/ranges", method: str = "GET", stage: str = "$default"
) -> dict[str, Any]:
    """Make what is looked at of an event."""
    request = {"http": {"method": method}, "stage": stage}
    given = {} if parameters is None else {"queryStringParameters": parameters}
    return {"rawPath": path, "requestContext": request, **given}


def test_a_query_has_defaults() -> None:
    assert plain_query(event(PLAIN)) == RangesQuery("/", "orders", FIRST)


def test_every_parameter_is_read() -> None:
    asked = {
        "vhost": "a/b",
        "name": "\n",
        "incarnation": "one",
        "offset": "007",
        "max_ranges": "1000",
        "max_bytes": "5",
        "range_bytes": "6",
        "precise": "true",
    }
    wanted = RangesQuery("a/b", "\n", AtOffset(Offset(7)), "one", Bounds(1000, 5, 6), precise=True)
    assert plain_query(event(asked)) == wanted


def test_a_cursor_is_a_start() -> None:
    query = plain_query(event({"vhost": "/", "name": "orders", "cursor": "x"}))
    assert query is not None
    assert query.start == Continue("x")


def test_starts_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidQueryError, match="not 2 of them"):
        plain_query(event(PLAIN | {"offset": "7"}))


def test_a_signature_in_the_query_is_no_parameter() -> None:
    assert plain_query(event(PLAIN | {"X-Amz-SignedHeaders": "host,range"})) == plain_query(event(PLAIN))


@pytest.mark.parametrize(
    "more",
    [
        "name=a,b",
        "limit=1",
        "spec=middle",
        "spec=",
        "offset=-1",
        "offset=1%0A",
        "offset=%D9%A1",
        "offset=100000000000000000000000000000",
        "max_ranges=0",
        "max_ranges=01",
        "max_ranges=1001",
        "max_bytes=1e9",
        "range_bytes=%2B1",
        "precise=yes",
        "precise=True",
    ],
)
def test_a_value_that_is_not_plainly_valid_is_left_to_powertools(more: str) -> None:
    assert plain_query(event(PLAIN | dict(parse_qsl(more, keep_blank_values=True)))) is None


@pytest.mark.parametrize(
    "other",
    [
        event(None),
        event({"vhost": "/", "spec": "first"}),
        event(PLAIN, path="/stream"),
        event(PLAIN, path="/ranges/"),
        event(PLAIN, method="POST"),
        event(PLAIN, stage="prod"),
        {},
    ],
    ids=str,
)
def test_what_is_not_plainly_a_get_of_ranges_is_left_to_powertools(other: dict[str, Any]) -> None:
    assert plain_query(other) is None
