"""`DirectArchive`: the archive that direct streams are in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from coldstream.manifest.cluster import DIRECT_CLUSTER
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.settings import Settings
from coldstream.units import TimestampMs, now_ms

DIRECT = DIRECT_CLUSTER
"""The names of direct streams are bound to this cluster, so that no agent can announce segments of them."""

CONNECTIONS = 64
"""Connections that are kept, to S3 and to the table: a client has 38 threads unless told otherwise, each seal more."""


@dataclass(frozen=True, slots=True)
class DirectArchive:
    """One bucket and one table. `now` stamps batches and changes; nothing is decided by it."""

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    now: Callable[[], TimestampMs] = now_ms

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Open the archive that COLDSTREAM_BUCKET and COLDSTREAM_TABLE name, as commands do. No request is made.

        The SDK finds region, credentials and endpoint. Raises InvalidSettingError.
        """
        from coldstream.store.objects import S3Objects  # noqa: PLC0415  both load the SDK, 0.5 s
        from coldstream.store.table import DynamoTable  # noqa: PLC0415

        settings = Settings.from_environment(environment)
        objects = S3Objects(settings.bucket, connections=CONNECTIONS)
        return cls(DynamoTable(settings.table, connections=CONNECTIONS), objects, Keys(settings.prefix))

    @classmethod
    def in_memory(cls) -> Self:
        """Return an empty archive in memory, for tests of programs. Clients that share it share its streams."""
        return cls(MemoryTable(), MemoryObjects(), Keys(""))

    @property
    def control(self) -> ControlObjects:
        """The control objects of this archive."""
        return ControlObjects(self.objects, self.keys)
