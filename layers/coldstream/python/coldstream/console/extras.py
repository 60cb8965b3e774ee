"""Which extra brings which package: `pip install coldstream` alone brings what the functions need, and no more."""

from __future__ import annotations

from coldstream.errors import MissingExtraError

EXTRAS = {
    "inotify_simple": "agent",
    "mmh3": "replay",
    "moto": "local",
    "numpy": "replay",
    "pika": "replay",
    "prometheus_client": "agent",
    "pyarrow": "replay",
    "pyspark": "spark",
    "rich": "cli",
    "rstream": "consumer",
    "typer": "cli",
    "werkzeug": "local",
    "yaml": "local",
}
"""Extras by the module that is imported."""


def missing_extra(err: ModuleNotFoundError, extra: str | None = None) -> MissingExtraError | None:
    """Say what to install where an import failed; None where the module is of no extra.

    `extra` is the one that brings all that the caller needs, where it is known.
    """
    module = (err.name or "").partition(".")[0]
    found = EXTRAS.get(module)
    return None if found is None else MissingExtraError(module, extra or found)
