"""Which function runs which kind of job in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from coldstream.jobs.attempt import Kind
from coldstream.jobs.run import JobRun, RunEnd
from coldstream.jobs.specs import JobKind
from coldstream.upkeep.kinds import UPKEEP_KINDS, UpkeepKind
from coldstream.worker.export import run_export
from coldstream.worker.load import run_load
from coldstream.worker.store import run_store
from coldstream.worker.tools import WorkerTools


def kinds_of(tools: WorkerTools) -> Mapping[JobKind, Kind]:
    """Return the kinds that a worker runs. One that is not here waits for a worker that has it."""
    return {
        JobKind.LOAD: partial(run_load, tools=tools),
        JobKind.EXPORT: partial(run_export, tools=tools),
        JobKind.STORE: partial(run_store, tools=tools),
        **{kind: partial(_run_upkeep, kind=run, tools=tools) for kind, run in UPKEEP_KINDS.items()},
    }


def _run_upkeep(run: JobRun, *, kind: UpkeepKind, tools: WorkerTools) -> RunEnd:
    """Run a kind that needs AWS alone. Cost: three GETs, to see what the bucket can do, and what the kind costs."""
    return kind(run, tools.upkeep())
