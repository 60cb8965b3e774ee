"""The API function on an archive in memory."""

from __future__ import annotations

from tests.support.asked_api import api

__all__ = ["api"]
