"""What maintain.py is made of, without Spark's processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from coldstream.erase.rewrite import Rewrite
from coldstream.erase.selection import Selection
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.units import Offset

pytest.importorskip("pyspark")

from coldstream_spark.maintenance import erase
from coldstream_spark.maintenance.split import borders
from coldstream_spark.maintenance.summary import MAX_TOLD, merged

from tests.store.samples import ORDERS, entry


@pytest.mark.parametrize(
    ("fragments", "most", "expected"),
    [(0, 1, ()), (10, 10, ()), (11, 10, (600,)), (4, 1, (350, 600, 850)), (3, 1, (433, 766))],
)
def test_a_long_stream_is_cut_evenly_by_offsets(fragments: int, most: int, expected: tuple[int, ...]) -> None:
    head = Head(ORDERS, first_offset=Offset(100), next_offset=Offset(1100), fragments=fragments)
    assert borders(head, most) == expected


def test_a_stream_of_fewer_offsets_than_ranges_has_no_border_twice() -> None:
    head = Head(ORDERS, first_offset=Offset(0), next_offset=Offset(2), fragments=5)
    assert borders(head, 1) == (1,)


def test_summaries_are_added_up_and_long_lists_cut_off() -> None:
    one = {"objects": 2, "dry_run": False, "streams": list(range(MAX_TOLD - 1)), "name": "a"}
    total = merged(merged(one, {"objects": 3, "dry_run": True, "streams": [1, 2, 3]}), {"objects": 1, "streams": [4]})
    assert (total["objects"], total["dry_run"], len(total["streams"]), total["not_told"]) == (6, True, MAX_TOLD, 3)


class Runner:
    """Runs tasks here, all of them ahead."""

    def map(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        yield from [work(task) for task in list(tasks)]


def test_rewrites_that_the_log_has_left_behind_are_dropped_and_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[FragmentEntry] = [entry(0, 10), entry(10, 20), entry(20, 30)]
    made: list[str] = []
    discarded: list[object] = []

    def rewrite(_: object, __: object, task: erase.ErasureTask) -> Rewrite:
        made.append(task.entry.key)
        return Rewrite(task.entry, replace(task.entry, key=f"{task.entry.key}, new"))

    monkeypatch.setattr(erase, "rewrite", rewrite)
    monkeypatch.setattr(
        erase, "_entries", lambda _, __, offset, ___: iter([one for one in log if one.next_offset > offset])
    )
    monkeypatch.setattr(erase.RewriteAhead, "_discard", lambda _, result: discarded.append(result))

    class Archive:
        def open(self) -> None: ...

    ahead = erase.RewriteAhead(cast("Any", Archive()), cast("Any", Runner()), None)
    selection = Selection(Offset(0), Offset(30))
    first = ahead(ORDERS, log[0], selection)
    assert first is not None
    assert first.before == log[0]
    compacted = replace(entry(10, 30), key="compacted")
    stale = log[1]
    log[1:] = [compacted]
    second = ahead(ORDERS, compacted, selection)
    assert second is not None
    assert second.before == compacted
    assert [one.before for one in discarded if isinstance(one, Rewrite)] == [stale]
    assert ahead(ORDERS, stale, selection) is None  # the log has no such entry any more
    assert made[-1] == "compacted"
