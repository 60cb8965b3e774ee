"""Quarantine: what a record is about stays, copies and reasons."""

from __future__ import annotations

from coldstream.manifest.entry import Quarantine
from coldstream.units import Offset
from tests.garbage.littered import LitteredArchive
from tests.store.samples import ORDERS

LIFE = ORDERS.incarnation


def test_quarantine_stays_as_long_as_a_record_is_about_it() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    key = archive.put(archive.keys.quarantined(LIFE, Offset(20), "b"))
    first_copy = archive.put(archive.keys.quarantined(LIFE, Offset(20), "a"))
    note = archive.put(f"{key}.json")
    left = archive.put(archive.keys.quarantined(LIFE, Offset(40), "c"))
    left_note = archive.put(f"{left}.json")
    archive.quarantine(Quarantine(Offset(20), Offset(30), "torn", archive.at, key, "b"))
    archive.pass_days(16)
    archive.collect()
    assert {key, first_copy, note} <= archive.stored
    assert not {left, left_note} & archive.stored
