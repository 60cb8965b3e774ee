"""Kinds and states of jobs as the command line's choices.

`jobs.specs` has them, too, with models that take longer to load than `--help` may; a test holds these to those.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class KindChoice(StrEnum):
    """What a job does."""

    STORE = "store"
    LOAD = "load"
    COMPACT = "compact"
    SCRUB = "scrub"
    ERASE = "erase"
    EXPORT = "export"
    RETENTION = "retention"


class StateChoice(StrEnum):
    """Where a job is in its life."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


RunnerName = Literal["auto", "worker", "lambda", "emr"]
FormatName = Literal["jsonl", "parquet", "segments"]
