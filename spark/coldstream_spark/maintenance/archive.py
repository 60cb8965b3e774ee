"""The archive, as it travels to executors: a value from which each process opens its own connections."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.store.keys import Keys
from coldstream_spark.location import ArchiveLocation


@dataclass(frozen=True, slots=True)
class RemoteArchive:
    """Table, bucket and prefix; `grace_ms` is how long what is removed stays (`store.grace`)."""

    location: ArchiveLocation
    prefix: str
    grace_ms: int

    def open(self) -> LifecycleStores:
        """Open it, once a process. Cost, the first time: three GETs."""
        return _opened(self)


@cache
def _opened(archive: RemoteArchive) -> LifecycleStores:
    location = archive.location
    return LifecycleStores.open(
        location.open_table(), location.open_bucket(), Keys(archive.prefix), grace_ms=archive.grace_ms
    )
