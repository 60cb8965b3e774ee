"""Permissions in a file, which is read again when it has changed. `permissions.py` has its format."""

from __future__ import annotations

from pathlib import Path

from coldstream.gateway.alone.permissions import StreamPermissions
from coldstream.gateway.alone.watched_file import WatchedFile


class PermissionFile(WatchedFile[StreamPermissions]):
    """Implements `PermissionSource`."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises InvalidSettingError, which names the line, and if everybody may write it."""
        super().__init__(path, "permissions_file", lambda text: StreamPermissions.parse(text.splitlines()))
