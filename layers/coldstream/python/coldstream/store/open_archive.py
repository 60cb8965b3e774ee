"""The archive that the environment names: table, bucket and keys, opened once and handed around."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

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

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ, connections: int = CONNECTIONS) -> OpenArchive:
        """Open the archive of COLDSTREAM_*. Costs no request. Raises InvalidSettingError.

        `connections` are kept to each of table and bucket; a thread beyond them makes and drops its own.
        """
        settings = Settings.from_environment(environment)
        objects = S3Objects(settings.bucket, connections=connections)
        return cls(settings, DynamoTable(settings.table, connections=connections), objects, Keys(settings.prefix))
