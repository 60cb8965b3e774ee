"""Heads of many streams, and a stream without its log: the contract of two reads, on every implementation."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.manifest.commit import plan_missing
from coldstream.manifest.entry import Gap, Head, Hold, Loss, Missing, Quarantine
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import ManifestTable, StreamOverview
from coldstream.store.table import DynamoTable
from coldstream.units import MAX_OFFSET, Offset
from tests.store.samples import NOW, ORDERS, commit, entry
from tests.store.wire import Wire

LIFE = ORDERS.incarnation
LOST = Loss(Offset(10), Offset(20), "the disk was full", NOW)
BAD = Quarantine(Offset(30), Offset(40), "größer als erlaubt", NOW, "quarantine/x", '"etag"')


def other(number: int) -> StreamId:
    return StreamId("/", f"orders-{number}", Incarnation(f"__orders-{number}_1763700000000000000"))


def head_of(table: ManifestTable) -> Head:
    head = table.head(LIFE)
    assert head is not None
    return head


def record(table: ManifestTable, one: Missing) -> None:
    gaps = [gap for gap in table.gaps(LIFE, 10) if gap.first_offset == one.first_offset]
    change = plan_missing(head_of(table), one, list(table.missing(LIFE)), gaps)
    assert change is not None
    table.apply(change)


def hold(id_: str) -> Hold:
    return Hold(id_, Offset(0), None, "court order 12/34", "arn:aws:iam::1:user/jo", NOW)


def holed(table: ManifestTable) -> None:
    """Commit three fragments with holes between, of which a loss explains one; put a segment aside, and two holds."""
    for first in (0, 20, 40):
        commit(table, entry(first, first + 10))
    record(table, LOST)
    record(table, BAD)
    for id_ in ("a", "~z"):
        table.apply(plan_hold(head_of(table), hold(id_)))


def test_heads_are_of_the_streams_that_are_there(table: ManifestTable) -> None:
    for number in range(3):
        commit(table, entry(0, 10 + number), other(number))
    wanted = [other(number).incarnation for number in range(4)]
    found = table.heads([*wanted, wanted[0]])
    assert {incarnation: head.next_offset for incarnation, head in found.items()} == dict(zip(wanted, (10, 11, 12)))  # noqa: B905
    assert found[wanted[1]] == table.head(wanted[1])


def test_no_heads_are_no_request(table: ManifestTable) -> None:
    assert table.heads([]) == {}


def test_a_hundred_heads_come_at_once(table: ManifestTable) -> None:
    for number in range(100):
        commit(table, entry(0, 10), other(number))
    found = table.heads([other(number).incarnation for number in range(100)])
    assert {head.stream for head in found.values()} == {other(number) for number in range(100)}


def test_an_overview_has_everything_beside_the_log(table: ManifestTable) -> None:
    holed(table)
    assert table.overview(LIFE) == StreamOverview(
        head_of(table),
        gaps=(Gap(Offset(10), Offset(20), LOST.reason), Gap(Offset(30), Offset(40), f"in quarantine: {BAD.reason}")),
        holds=(hold("a"), hold("~z")),
        missing=(LOST, BAD),
    )


def test_the_overview_of_an_unknown_stream_is_empty(table: ManifestTable) -> None:
    holed(table)
    assert table.overview(Incarnation("another")) == StreamOverview(None)


def test_the_overview_of_a_stream_where_nothing_is_missing_has_its_head(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    assert table.overview(LIFE) == StreamOverview(head_of(table))


def test_an_overview_of_short_pages_has_the_head_the_holds_and_the_last_gaps(table: ManifestTable) -> None:
    holed(table)
    found = table.overview(LIFE, page_items=3)
    assert found.head == head_of(table)
    assert [one.id for one in found.holds] == ["a", "~z"]
    assert [gap.first_offset for gap in found.gaps] == [30]
    assert found.gaps_from == 30
    assert table.overview(LIFE, page_items=2).missing == (LOST,)
    assert table.overview(LIFE, page_items=2).is_missing_cut


def test_of_holds_that_fill_a_page_the_overview_says_that_no_gap_was_read(table: ManifestTable) -> None:
    holed(table)
    found = table.overview(LIFE, page_items=1)
    assert [one.id for one in found.holds] == ["~z"]
    assert (found.gaps, found.gaps_from) == ((), MAX_OFFSET)


def test_an_overview_costs_two_queries_whatever_the_log_has(dynamo_table: DynamoTable) -> None:
    holed(dynamo_table)
    for first in range(50, 250, 10):
        commit(dynamo_table, entry(first, first + 10))
    with Wire(dynamo_table._connection().client) as seen:
        dynamo_table.overview(LIFE)
    assert seen.calls == ["Query", "Query"]
    assert all(body["ConsistentRead"] for body in seen.bodies)


class HalfAnswering(DynamoTable):
    """Reads one head of each batch, `times` times; then all."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__(name)
        self.times = times

    def _call(self, operation: Any, parameters: Any, what: str) -> Any:
        if operation != "BatchGetItem" or self.times == 0:
            return super()._call(operation, parameters, what)
        self.times -= 1
        ((name, asked),) = parameters["RequestItems"].items()
        first, *rest = asked["Keys"]
        answer = super()._call(operation, {"RequestItems": {name: asked | {"Keys": [first]}}}, what)
        return dict(answer) | {"UnprocessedKeys": {name: asked | {"Keys": rest}} if rest else {}}


def test_heads_that_were_left_out_are_asked_for_again(dynamo_table: DynamoTable, delays: list[float]) -> None:
    for number in range(4):
        commit(dynamo_table, entry(0, 10), other(number))
    table = HalfAnswering(dynamo_table._name, 2)
    assert len(table.heads([other(number).incarnation for number in range(4)])) == 4
    assert len(delays) == 2


def test_heads_that_are_always_left_out_are_an_outage(dynamo_table: DynamoTable, delays: list[float]) -> None:
    for number in range(9):
        commit(dynamo_table, entry(0, 10), other(number))
    table = HalfAnswering(dynamo_table._name, 99)
    with pytest.raises(UnavailableError, match="5 of them were left out"):
        table.heads([other(number).incarnation for number in range(9)])
    assert len(delays) == 3


def test_heads_are_one_consistent_request(dynamo_table: DynamoTable) -> None:
    commit(dynamo_table, entry(0, 10))
    with Wire(dynamo_table._connection().client) as seen:
        assert dynamo_table.heads([LIFE, Incarnation("another")])
    assert seen.calls == ["BatchGetItem"]
    ((_, asked),) = seen.bodies[0]["RequestItems"].items()
    assert asked["ConsistentRead"]
