"""What tests of maintain.py send to executors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coldstream_spark.maintenance.archive import RemoteArchive

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.units import TimestampMs

LATER_MS = 30 * 24 * 3600 * 1000
"""Longer than any grace."""


@dataclass(frozen=True, slots=True)
class LaterArchive(RemoteArchive):
    """An archive whose clock is ahead, in each process that opens it."""

    def open(self) -> LifecycleStores:
        """Open it."""
        stores = RemoteArchive.open(self)
        return replace(stores, now=lambda: TimestampMs(stores.now() + LATER_MS))
