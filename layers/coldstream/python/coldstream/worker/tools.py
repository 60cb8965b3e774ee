"""What the kinds of jobs are given by the worker that runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs, now_ms
from coldstream.worker.brokers import BrokerBook


@dataclass(frozen=True, slots=True)
class WorkerTools:
    """The archive, the brokers, and the directory in which store jobs have their spools.

    `environment` names the archive once more, for the agent's machinery.
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    brokers: BrokerBook
    state: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    now: Callable[[], TimestampMs] = now_ms

    def lifecycle(self) -> LifecycleStores:
        """Open the archive for work on its life. Cost: three GETs, and a HEAD for AWS's clock."""
        return LifecycleStores.open(self.table, self.objects, self.keys, grace_ms=LONGEST_GRACE_MS)
