"""Property tests here are repeatable, and no slower machine fails them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("coldstream", deadline=None, database=None, derandomize=True)
settings.load_profile("coldstream")
