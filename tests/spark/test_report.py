"""The summary that a script leaves in the table."""

from __future__ import annotations

import json

from coldstream_spark.report import MAX_BYTES, leave_report

from coldstream.errors import UnavailableError
from coldstream.store.memory.table import MemoryTable


def test_a_summary_is_left_under_its_name_and_without_a_name_nowhere() -> None:
    table = MemoryTable()
    assert leave_report(table, None, {"messages": 1}) is None
    assert leave_report(table, "r", {"messages": 1}) is None
    assert table.cursor("r") == b'{"messages": 1}'


def test_one_that_is_too_large_is_left_without_its_lists() -> None:
    table = MemoryTable()
    leave_report(table, "r", {"messages": 1, "streams": ["x" * 100] * (MAX_BYTES // 100)})
    left = table.cursor("r")
    assert left is not None
    assert json.loads(left) == {"messages": 1}


def test_a_table_that_does_not_answer_is_told_and_ends_nothing() -> None:
    class Silent(MemoryTable):
        def put_cursor(self, name: str, data: bytes) -> None:
            raise UnavailableError(f"no answer for {name}, {len(data)} bytes")

    assert leave_report(Silent(), "r", {}) == "the report was not left: no answer for r, 2 bytes"
