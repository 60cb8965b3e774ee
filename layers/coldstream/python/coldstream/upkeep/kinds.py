"""The kinds of jobs that need AWS alone, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from coldstream.jobs.run import JobRun, RunEnd
from coldstream.jobs.specs import JobKind
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.compact import run_compact
from coldstream.upkeep.erase import run_erase
from coldstream.upkeep.retention import run_retention_policies
from coldstream.upkeep.scrub import run_scrub

UpkeepKind = Callable[[JobRun, UpkeepArchive], RunEnd]
"""Does a job's work on an archive. It raises ColdstreamError if it fails: one that is retryable is tried again."""

UPKEEP_KINDS: Mapping[JobKind, UpkeepKind] = MappingProxyType(
    {
        JobKind.COMPACT: run_compact,
        JobKind.SCRUB: run_scrub,
        JobKind.ERASE: run_erase,
        JobKind.RETENTION: run_retention_policies,
    }
)
