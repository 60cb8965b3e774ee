from __future__ import annotations

import json

import pytest

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.manifest.stream import Incarnation
from coldstream.scrub.account import Account, Sums
from coldstream.scrub.damage import Damage, Finding
from coldstream.scrub.position import KEPT_FINDINGS, PassPosition, Stage
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, STREAM

FINDING = Finding(Damage.LINK, STREAM, Offset(5), Offset(9), "key/ö", "the link is broken")
POSITION = PassPosition(
    deep=True,
    began_at=NOW,
    only=(Incarnation("a"), Incarnation("b")),
    streams_total=2,
    streams_done=1,
    after="hash#a",
    stage=Stage.LOG,
    reached="17",
    account=Account(7, Offset(40), Sums(1, 2, 3, 4, 5, 6, 7)),
    fragments=9,
    unread=1,
    unsettled=2,
    counts={"LinkBroken": 1},
    findings=(FINDING,),
    ended_at=TimestampMs(NOW + 1),
)


@pytest.mark.parametrize("position", [POSITION, PassPosition(deep=False, began_at=NOW)])
def test_a_position_comes_back_as_it_was_saved(position: PassPosition) -> None:
    assert PassPosition.from_bytes(position.to_bytes(), source="scrub") == position


def test_another_releases_position_is_refused() -> None:
    value = json.loads(POSITION.to_bytes()) | {"version": 2}
    with pytest.raises(BadVersionError, match="version of a scrub's position"):
        PassPosition.from_bytes(json.dumps(value).encode(), source="scrub")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":1}', POSITION.to_bytes()[:-9]])
def test_what_is_no_position_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="no position of a scrub"):
        PassPosition.from_bytes(data, source="scrub")


def test_a_position_counts_all_findings_and_keeps_so_many_that_an_item_can_hold_them() -> None:
    full = POSITION.with_findings((FINDING,) * 1000, fragments=0, unread=0, unsettled=0)
    assert full.counts == {"LinkBroken": 1001}
    assert len(full.findings) == KEPT_FINDINGS
    assert len(full.to_bytes()) < 400 * 1024
