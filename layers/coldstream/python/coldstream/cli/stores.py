"""The archive that a command of its operator works on: table and bucket, from COLDSTREAM_* in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldstream.compact.arguments import LONGEST_URL_EXPIRY

if TYPE_CHECKING:
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.store.keys import Keys
    from coldstream.store.objects import S3Objects
    from coldstream.store.settings import Settings
    from coldstream.store.table import DynamoTable

CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class OpenArchive:
    """Table, objects and keys of the archive that the environment names. Nothing is asked yet."""

    settings: Settings
    table: DynamoTable
    objects: S3Objects
    keys: Keys


def open_archive(connections: int = CONNECTIONS) -> OpenArchive:
    """Open the archive. Costs no request. Raises InvalidSettingError."""
    from coldstream.store.keys import Keys
    from coldstream.store.objects import S3Objects
    from coldstream.store.settings import Settings
    from coldstream.store.table import DynamoTable

    settings = Settings.from_environment(os.environ)
    objects = S3Objects(settings.bucket, connections=connections)
    return OpenArchive(settings, DynamoTable(settings.table), objects, Keys(settings.prefix))


def open_stores(url_expiry: str = LONGEST_URL_EXPIRY) -> LifecycleStores:
    """Open the archive for work on its life; its resolvers' URLs are valid for so long. Raises InvalidSettingError.

    Cost: three GETs, and a HEAD for AWS's clock.
    """
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.store.grace import read_grace_ms

    grace_ms = read_grace_ms(url_expiry)
    archive = open_archive()
    return LifecycleStores.open(archive.table, archive.objects, archive.keys, grace_ms=grace_ms)
