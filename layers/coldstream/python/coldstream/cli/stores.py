"""The archive that a command of its operator works on: table and bucket, from COLDSTREAM_* in the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldstream.compact.arguments import LONGEST_URL_EXPIRY

if TYPE_CHECKING:
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.store.open_archive import OpenArchive


def open_archive(connections: int | None = None) -> OpenArchive:
    """Open the archive. Costs no request. Raises InvalidSettingError."""
    from coldstream.store.open_archive import CONNECTIONS, OpenArchive

    return OpenArchive.of_environment(connections=connections or CONNECTIONS)


def open_stores(url_expiry: str = LONGEST_URL_EXPIRY) -> LifecycleStores:
    """Open the archive for work on its life; its resolvers' URLs are valid for so long. Raises InvalidSettingError.

    Cost: three GETs, and a HEAD for AWS's clock.
    """
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.store.grace import read_grace_ms

    grace_ms = read_grace_ms(url_expiry)
    archive = open_archive()
    return LifecycleStores.open(archive.table, archive.objects, archive.keys, grace_ms=grace_ms)
