"""The choice of a runner: what a job asks for, or what fits its size.

    worker    any kind, any size
    lambda    kinds of upkeep, up to 2 GiB, if a queue for jobs is configured
    emr       what Spark does, from 100 GiB on, if EMR Serverless is configured

Sizes follow from the heads of the streams. Retention, and a scrub that does not read every byte, have as much to do as
there are fragments; the other kinds, as there are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.dispatch.emr_arguments import not_for_emr
from coldstream.errors import ColdstreamError, InvalidInputError, RunnerError
from coldstream.jobs.specs import (
    CompactSpec,
    EraseSpec,
    ExportSpec,
    JobSpec,
    LoadSpec,
    RetentionSpec,
    ScrubSpec,
    StoreSpec,
)
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import select_streams
from coldstream.units import KIB
from coldstream.upkeep.choice import StreamChoice
from coldstream.upkeep.kinds import UPKEEP_KINDS
from coldstream.upkeep.survey import Survey, survey

MOST_FOR_LAMBDA = 2 << 30
LEAST_FOR_EMR = 100 << 30

FRAGMENT_WORK = 64 * KIB
"""What a fragment counts for whoever reads no more of it than its entry and its ends."""


class Runner(StrEnum):
    """Who runs a job."""

    WORKER = "worker"
    LAMBDA = "lambda"
    EMR = "emr"


@dataclass(frozen=True, slots=True)
class AvailableRunners:
    """What is configured beside workers, which everybody can start."""

    has_queue: bool = False
    has_emr: bool = False


def check_runner(spec: JobSpec, available: AvailableRunners | None = None) -> None:
    """Raise RunnerError for a job that its runner can never run; without `available`, whatever is configured."""
    match spec.runner:
        case Runner.LAMBDA if spec.kind not in UPKEEP_KINDS:
            kinds = ", ".join(UPKEEP_KINDS)
            raise RunnerError(f"a Lambda runs {kinds}, and no {spec.kind}: leave out the runner, or say worker")
        case Runner.LAMBDA if available is not None and not available.has_queue:
            raise RunnerError("no queue for jobs is configured: deploy with Jobs=on, or say worker")
        case Runner.EMR if (problem := not_for_emr(spec)) is not None:
            raise RunnerError(f"{problem}: leave out the runner, or say worker")
        case Runner.EMR if available is not None and not available.has_emr:
            raise RunnerError(
                "EMR Serverless is not configured: deploy with WithSpark=true and Jobs=on, or set COLDSTREAM_EMR_*, or"
                " say worker"
            )


def check_creatable(spec: JobSpec) -> None:
    """Raise InvalidInputError for a job that its runner can never run, before it is created."""
    try:
        check_runner(spec)
    except RunnerError as err:
        raise InvalidInputError("runner", str(err)) from err


def choose_runner(spec: JobSpec, size_bytes: int | None, available: AvailableRunners) -> Runner:
    """Return who runs a job of a size, None if nobody knows it. Raises RunnerError if it asks for the impossible."""
    check_runner(spec, available)
    if spec.runner != "auto":
        return Runner(spec.runner)
    if size_bytes is None:
        return Runner.WORKER
    if available.has_emr and size_bytes >= LEAST_FOR_EMR and not_for_emr(spec) is None:
        return Runner.EMR
    if available.has_queue and size_bytes <= MOST_FOR_LAMBDA and spec.kind in UPKEEP_KINDS:
        return Runner.LAMBDA
    return Runner.WORKER


def runner_of(table: ManifestReads, spec: JobSpec, available: AvailableRunners) -> Runner:
    """Return who runs a job. Cost: nothing if it says so, or if there is no choice; else that of `size_of`."""
    is_open = spec.runner == "auto" and (available.has_queue or available.has_emr)
    return choose_runner(spec, size_of(table, spec) if is_open else None, available)


def size_of(table: ManifestReads, spec: JobSpec) -> int | None:
    """Return how much a job has to do, in bytes; None if that is not known, or is more than a few reads can tell.

    Cost: that of `survey`; of an erasure a Query and a GetItem.
    """
    match spec:
        case StoreSpec():
            return None
        case EraseSpec():
            try:
                (stream,) = select_streams(table, spec.vhost, [spec.stream], incarnation=spec.incarnation)
            except ColdstreamError:
                return 0  # whoever runs it tells what is wrong
            head = table.head(stream.incarnation)
            return 0 if head is None else head.data_bytes
        case CompactSpec() | ScrubSpec() | RetentionSpec() | LoadSpec() | ExportSpec():
            found = survey(table, StreamChoice.find(table, spec))
            work = _work(spec, found)
            return work if found.is_complete or work >= LEAST_FOR_EMR else None


def _work(spec: JobSpec, found: Survey) -> int:
    reads_little = isinstance(spec, RetentionSpec) or (isinstance(spec, ScrubSpec) and not spec.deep)
    return found.fragments * FRAGMENT_WORK if reads_little else found.data_bytes
