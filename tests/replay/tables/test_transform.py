"""Rows through a user's function."""

from __future__ import annotations

import pyarrow as pa
import pytest

from coldstream.replay.tables.row_transform import Row, iter_dicts, transform_rows
from coldstream.rows.schema import SCHEMA
from tests.support.amqp_samples import encode
from tests.support.rows import as_rows


def test_a_transformation_changes_rows_and_leaves_some_out() -> None:
    found = as_rows(encode(body=b"one"), encode(body=b"two", application_properties={"k": "v"}))

    def second(row: Row) -> Row | None:
        if row["value"] == b"one":
            return None
        return row | {"value": row["value"].upper(), "application_properties": {"n": "1"}, "offset": 0, "stream": "x"}

    made = transform_rows(found, second)
    assert made.schema == SCHEMA
    (row,) = iter_dicts(made)
    assert (row["value"], row["application_properties"]) == (b"TWO", {"n": "1"})
    assert (row["stream"], row["offset"]) == ("orders", 41)
    assert transform_rows(found, lambda _: None).num_rows == 0


def test_a_transformation_that_makes_no_row_is_an_error() -> None:
    with pytest.raises((TypeError, pa.ArrowInvalid)):
        transform_rows(as_rows(encode(body=b"one")), lambda row: row | {"value": object()})
