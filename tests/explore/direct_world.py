"""Worlds of a direct stream: who appends to it, and what it has been through before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from coldstream.errors import (
    ContradictionError,
    HeldError,
    NotClosedError,
    UnavailableError,
)
from coldstream.manifest.appending import plan_create
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams.archive import DirectArchive
from coldstream.units import Offset
from tests.explore.base import NOW
from tests.explore.bucket_store import BucketState
from tests.explore.direct import ENDS, KEYS, STREAM, appender, collect, trimmer
from tests.explore.direct_bases import ACTORS, BASES
from tests.explore.names_store import NamesState
from tests.explore.runs import Role
from tests.explore.site import Site
from tests.explore.world import Faults, World

DIRECT: dict[str, Callable[[str], Callable[[Site], None]]] = {
    "append": partial(appender, batches=1, closes=False),
    "appends": partial(appender, batches=2, closes=False),
    "closing": partial(appender, batches=1, closes=True),
    "trim": lambda _: trimmer,
    "collect": lambda _: collect,
    **ACTORS,
}
"""What an actor of each kind does, by its letter."""


OF_BASES = (*ENDS, ContradictionError, HeldError, NotClosedError)
"""With these a process learns what the stream has been through."""


def direct_world(names: Sequence[str], *, faults: str = "0c0l0r") -> World:
    """Return an empty direct stream, and who appends to it."""
    table, objects = MemoryTable(), MemoryObjects(clock=lambda: NOW)
    archive = DirectArchive(table, objects, KEYS, lambda: NOW)
    archive.control.write_stream(STREAM)
    table.apply(plan_create(STREAM, NOW, first=Offset(0), properties={}))
    for name in names:
        if name in BASES:
            BASES[name](table, objects)
    roles = [
        Role(
            name,
            DIRECT[name.partition(".")[0]](chr(ord("a") + number)),
            OF_BASES if name in {"blind", "force"} or BASES.keys() & {*names} else ENDS,
            (UnavailableError,),
        )
        for number, name in enumerate(one for one in names if one not in BASES)
    ]
    return World(
        stream=STREAM,
        log=table._partitions[STREAM.incarnation],
        recorded=table._recorded.get(STREAM.incarnation, {}),
        names=NamesState.of(table),
        bucket=BucketState({key: objects._version(key) for key in sorted(objects.objects)}),
        now=NOW,
        roles=roles,
        faults=Faults.parse(faults),
    )
