"""Loads the files `guard_*.py`: their bases and actors are for the worlds of guards, and not for the pairs of all."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def load() -> None:
    """Have all worlds know of them."""
    for path in sorted(Path(__file__).parent.glob("guard_*.py")):
        import_module(f"tests.explore.{path.stem}")
