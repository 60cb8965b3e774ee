"""What the API's routes share: the archive, opened once, the log, the metrics, and how errors are reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from coldstream.api.job_rights import JobRights, admits_unknown
from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.names import StreamNames
from coldstream.errors import ColdstreamError
from coldstream.jobs.store import JobStore
from coldstream.resolve.caller import Caller
from coldstream.resolve.permissions import MayRead, Permissions
from coldstream.resolve.problem import UNAVAILABLE, Problem, instance_of, problem_of
from coldstream.store.open_archive import OpenArchive
from coldstream.store.ports import ManifestTable, ObjectReads
from coldstream.store.settings import METRICS_NAMESPACE
from coldstream.units import TimestampMs, now_ms

RETRY_AFTER_S = 1

logger = Logger(service="coldstream-api")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="api")


@dataclass(frozen=True, slots=True)
class ServedArchive:
    """The archive that the API is for, and who may do what with it."""

    table: ManifestTable
    objects: ObjectReads
    permissions: Permissions
    rights: JobRights
    now: Callable[[], TimestampMs] = now_ms
    jobs: JobStore = field(init=False)
    names: StreamNames = field(init=False)
    catalogue: StreamCatalogue = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", JobStore(self.table, self.now))
        object.__setattr__(self, "names", StreamNames(self.table))
        # A function stands still between two requests: it reads the streams again while somebody waits.
        object.__setattr__(self, "catalogue", StreamCatalogue(self.table, now=self.now, in_background=False))

    def readable(self, caller: Caller) -> MayRead | None:
        """Return a test of which streams a caller may read, None if that is every one. Raises NotPermittedError."""
        self.rights.check_known(caller)
        return self.permissions.of(caller)

    def check_readable(self, caller: Caller, vhost: str, name: str) -> None:
        """Raise NotPermittedError unless a caller may read a stream, whether or not that stream exists."""
        self.rights.check_known(caller)
        self.permissions.check(caller, vhost, name)


@cache
def served() -> ServedArchive:
    """Open the archive of this execution environment, at its first request."""
    archive = OpenArchive.of_environment()
    settings = archive.settings
    permissions = Permissions(
        archive.table if settings.iam_permissions else None,
        settings.scope_claim if settings.token_permissions else None,
    )
    rights = JobRights(settings.scope_claim if settings.token_permissions else None, admits_unknown())
    return ServedArchive(archive.table, archive.objects, permissions, rights)


def report_error(err: Exception, request_id: str) -> tuple[Problem, dict[str, str]]:
    """Return the problem and the headers that report an error to the client. Log an error that is not the client's."""
    problem = problem_of(err, instance=instance_of(request_id))
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        retryable = isinstance(err, ColdstreamError) and err.retryable
        logger.error("request failed", problem=problem.type, retryable=retryable, exc_info=err)
        metrics.add_metric("Failures", MetricUnit.Count, 1)
    return problem, {"Retry-After": str(RETRY_AFTER_S)} if problem.type == UNAVAILABLE.type else {}
