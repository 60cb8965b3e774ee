"""Which extra brings which package. `pip install coldstream` alone brings only what the functions need."""

from __future__ import annotations

from coldstream.errors import MissingExtraError

EXTRAS = {
    "inotify_simple": "agent",
    "jinja2": "console",
    "mangum": "console",
    "markupsafe": "console",
    "mmh3": "shards",
    "moto": "local",
    "numpy": "replay",
    "pika": "shards",
    "prometheus_client": "agent",
    "pyarrow": "replay",
    "pyspark": "spark",
    "rich": "cli",
    "rstream": "consumer",
    "starlette": "serve",
    "typer": "cli",
    "uvicorn": "serve",
    "uvloop": "gateway",
    "werkzeug": "local",
    "yaml": "local",
}
"""Extras by the name of the module that is imported."""


def missing_extra(err: ModuleNotFoundError, extra: str | None = None) -> MissingExtraError | None:
    """Turn a failed import into an error that names the extra to install, or None if no extra brings the module.

    `extra` overrides the table: the caller may need more than this one module, and know the extra that brings it all.
    """
    module = (err.name or "").partition(".")[0]
    found = EXTRAS.get(module)
    return None if found is None else MissingExtraError(module, extra or found)
