"""The archive, as jobs of upkeep need it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coldstream.lifecycle.stores import LifecycleStores
from coldstream.store.grace import LONGEST_GRACE_MS, grace_ms
from coldstream.store.open_archive import OpenArchive


@dataclass(frozen=True, slots=True)
class UpkeepArchive:
    """The stores, and what this process may do with them.

    `spool_dir` is where fragments wait on disk that are written anew. `may_sweep` tells whether a compaction deletes
    objects that are due, as the command does; where the sweep is off, nothing is.
    """

    stores: LifecycleStores
    spool_dir: Path | None = None
    may_sweep: bool = True

    @classmethod
    def open(cls, archive: OpenArchive, environment: Mapping[str, str] = os.environ) -> Self:
        """Ask the bucket what it can do. Cost: three GETs.

        Without COLDSTREAM_URL_EXPIRY_S nobody knows here how long the resolvers' URLs are valid: as long as any can be.
        """
        settings = archive.settings
        is_known = bool(environment.get("COLDSTREAM_URL_EXPIRY_S"))
        grace = grace_ms(settings.url_expiry_s) if is_known else LONGEST_GRACE_MS
        stores = LifecycleStores.open(archive.table, archive.objects, archive.keys, grace_ms=grace)
        spool_dir = None if settings.spool_dir is None else Path(settings.spool_dir)
        return cls(stores, spool_dir, environment.get("COLDSTREAM_SWEEP", "delete") == "delete")
