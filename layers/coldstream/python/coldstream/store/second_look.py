"""Damage is what a second look finds as well: one answer of a store may be wrong, or changed on its way here."""

from __future__ import annotations

from coldstream.errors import CorruptionError
from coldstream.retry import retrying

look_twice = retrying(CorruptionError, attempts=2, first_delay_s=0.0, max_delay_s=0.0)
"""Calls what reads, and once more if that finds damage."""
