"""Markers: what the bucket must say before the first object goes, so that a rebuild from it brings nothing back.

What removes is written to the bucket after its transaction. If a process ends between the two, this writes what is
missing.
"""

from __future__ import annotations

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import Erasure, Head
from coldstream.manifest.stream import Incarnation


def write_missing_markers(stores: LifecycleStores, head: Head) -> None:
    """Write what the bucket does not say yet of the floor, the deletion and the erasures of a stream.

    Cost: nothing for a stream without any of them; else a listing and a GET, a PUT if the note is missing, and for
    erasures that of `write_missing_erasures`.
    """
    if head.floor or head.generation or head.is_deleted:
        stores.control.write_missing_floor(head)
    if head.erasures:
        write_missing_erasures(stores, head.stream.incarnation)


def write_missing_erasures(stores: LifecycleStores, incarnation: Incarnation) -> None:
    """Write what the bucket does not say yet of the erasures of a stream.

    Cost: a Query, a listing and a GET for each erasure; that of `note_erasure` for each note that is missing.
    """
    # Compared whole: the note of a run that died may say of an earlier fragment that it was the last.
    known = set(stores.control.erasures(incarnation))
    for erasure in stores.table.erasures(incarnation):
        if erasure not in known:
            note_erasure(stores, incarnation, erasure)


def note_erasure(stores: LifecycleStores, incarnation: Incarnation, erasure: Erasure) -> None:
    """Have the bucket say what the table says of an erasure, which was as given a moment ago.

    Others may have gone on with it since, and this note, written late, be over theirs. So it is written until the table
    says the same after it. Cost: a PUT and a Query, again for each time that others were faster.
    """
    later: Erasure | None = erasure
    while later is not None:
        erasure = later
        stores.control.write_erasure(incarnation, erasure)
        there = stores.table.erasures(incarnation)
        later = next((one for one in there if one.id == erasure.id and one != erasure), None)
