"""What the kinds of jobs are given by the worker that runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from coldstream.agent.archive import ArchiveClient
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.store.grace import LONGEST_GRACE_MS, grace_ms
from coldstream.store.keys import Keys
from coldstream.store.open_archive import OpenArchive
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs, now_ms
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.worker.brokers import BrokerBook


@dataclass(frozen=True, slots=True)
class WorkerTools:
    """The archive, the brokers, and the directory in which store jobs have their spools.

    `environment` names the archive once more, for the agent's machinery. `grace_ms`, `spool_dir` and `may_sweep` are as
    in `UpkeepArchive`.
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    brokers: BrokerBook
    state: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    grace_ms: int = LONGEST_GRACE_MS
    spool_dir: Path | None = None
    may_sweep: bool = True
    now: Callable[[], TimestampMs] = now_ms

    @classmethod
    def open(
        cls, archive: OpenArchive, brokers: BrokerBook, state: Path, environment: Mapping[str, str] = os.environ
    ) -> Self:
        """Take the settings of an environment. Costs no request."""
        settings = archive.settings
        is_known = bool(environment.get("COLDSTREAM_URL_EXPIRY_S"))
        return cls(
            archive.table,
            archive.objects,
            archive.keys,
            brokers,
            state,
            environment,
            grace_ms=grace_ms(settings.url_expiry_s) if is_known else LONGEST_GRACE_MS,
            spool_dir=None if settings.spool_dir is None else Path(settings.spool_dir),
            may_sweep=environment.get("COLDSTREAM_SWEEP", "delete") == "delete",
        )

    def archive_client(self, limit: BandwidthLimit, uploads: int) -> ArchiveClient:
        """Return what stages and announces for the agent's machinery, with threads of its own; `stop` ends them."""
        return ArchiveClient.from_environment(self.environment, limit, uploads)

    def lifecycle(self) -> LifecycleStores:
        """Open the archive for work on its life. Cost: three GETs."""
        return LifecycleStores.open(self.table, self.objects, self.keys, grace_ms=self.grace_ms)

    def upkeep(self) -> UpkeepArchive:
        """Open the archive for kinds that need AWS alone. Cost: three GETs."""
        return UpkeepArchive(self.lifecycle(), self.spool_dir, self.may_sweep)
