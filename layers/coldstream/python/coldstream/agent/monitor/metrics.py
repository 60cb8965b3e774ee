"""The agent's metrics for Prometheus: counters, and gauges made from the last snapshot when they are scraped.

The labels `vhost` and `stream` tell streams apart, so incarnations of the same names count as one. An incarnation whose
names are not known yet has an empty vhost, and the name of its directory for a name.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, ProcessCollector, disable_created_metrics
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from coldstream.agent.monitor.exposition_format import ExpositionFormat
from coldstream.agent.monitor.status import AgentStatus
from coldstream.agent.monitor.stream_gauges import StreamGauges
from coldstream.agent.monitor.stream_series import StreamCounters, StreamLabels, StreamTexts
from coldstream.agent.stream_state import StreamState
from coldstream.errors import (
    AccessDeniedError,
    ConflictError,
    ContradictionError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import TimestampMs, now_ms

PREFIX = "coldstream_agent_"
STREAM_LABELS = ("vhost", "stream")

_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (AccessDeniedError, "denied"),
    (UnavailableError, "unavailable"),
    (OutcomeUnknownError, "unavailable"),
    (ConflictError, "unavailable"),
    (NotFoundError, "not_found"),
    (CorruptionError, "corruption"),
    (ContradictionError, "corruption"),
    (InvalidInputError, "settings"),
    (OSError, "disk"),
)

FAILURE_KINDS = (*dict.fromkeys(kind for _, kind in _KINDS), "unexpected")

_COUNTERS = {
    "staged_bytes": "Bytes copied to the staging area of the bucket.",
    "staged_segments": "Segments, and slices of segments, copied to the staging area.",
    "announced_bytes": "Bytes of what was announced on the event bus, counted again if an event is repeated.",
    "announced_segments": "Segments, and slices of segments, announced on the event bus.",
    "archived_bytes": "Bytes of what was announced, and then found in the manifest.",
    "archived_segments": "Segments, and slices of segments, announced, and then found in the manifest.",
    "quarantined_segments": "Segments, and slices of segments, that failed verification and went to quarantine.",
    "lost_offsets": "Offsets that were gone before they were archived; the archive has a gap there, with the reason.",
}

NAMES_TO_COME = frozenset({StreamState.STARTING, StreamState.EMPTY, StreamState.REFUSED})
"""States in which a stream without names is no news: its names are looked for, or its refusal is counted already."""


class Service(StrEnum):
    """A service that the agent depends on."""

    AWS = "aws"
    BROKER = "broker"


def failure_kind(err: BaseException) -> str:
    """Return the kind that a failure counts as."""
    return next((kind for error, kind in _KINDS if isinstance(err, error)), FAILURE_KINDS[-1])


class AgentMetrics(Collector):
    """Counts what happens, keeps the last snapshot, and shows both in a registry of its own.

    Any thread may call it. Cost of a scrape: 2 µs a quiet stream, 12 µs one that changed or lags. It switches the
    `_created` series of prometheus_client off for the whole process: they would double the number of series, and no
    counter of the agent is ever set back.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(namespace=PREFIX.rstrip("_"), registry=self._registry)
        self._counters = StreamCounters(_COUNTERS, PREFIX)
        self._gauges = StreamGauges(PREFIX)
        self._texts = StreamTexts()
        self._text_lock = threading.Lock()
        self._failures = Counter(
            f"{PREFIX}failures",
            "What failed and is tried again: unavailable, denied, not_found, corruption, settings, disk, unexpected.",
            (*STREAM_LABELS, "kind"),
            registry=self._registry,
        )
        # Beside the other values: the lock keeps `forget` from running between the moment when labels are
        # looked up and the moment when they are counted by: the series would come back, and stay for ever.
        self._lock = threading.Lock()
        self._status: AgentStatus | None = None
        self._contacts: dict[Service, TimestampMs] = {}
        self._labels: dict[Incarnation, StreamLabels] = {}

    @property
    def status(self) -> AgentStatus | None:
        """The last snapshot, None before the first."""
        with self._lock:
            if self._status is None:
                return None
            return replace(
                self._status,
                aws_contact_at=self._contacts.get(Service.AWS),
                broker_contact_at=self._contacts.get(Service.BROKER),
            )

    def show(self, status: AgentStatus) -> None:
        """Replace the snapshot."""
        with self._lock:
            shown = {stream.labels for stream in status.streams}
            # Counters begin at 0, so that Prometheus sees the first increase as one.
            for labels in shown:
                self._counters.count(labels, {})
            # A snapshot takes a while, and may show a stream that was forgotten meanwhile: its zeros go with the next.
            before = () if self._status is None else self._status.streams
            self._drop({stream.labels for stream in before} - shown - set(self._labels.values()))
            self._status = status

    def contacted(self, service: Service) -> None:
        """Note that a service has answered as it should."""
        with self._lock:
            self._contacts[service] = now_ms()

    def staged(self, stream: StreamId, size_bytes: int) -> None:
        """Count a segment, or a slice of one, that was staged."""
        self._count(stream, staged_segments=1, staged_bytes=size_bytes)

    def announced(self, stream: StreamId, size_bytes: int) -> None:
        """Count a segment, or a slice of one, that was announced."""
        self._count(stream, announced_segments=1, announced_bytes=size_bytes)

    def archived(self, stream: StreamId, size_bytes: int) -> None:
        """Count a segment, or a slice of one, that was announced and is in the manifest now."""
        self._count(stream, archived_segments=1, archived_bytes=size_bytes)

    def quarantined(self, stream: StreamId) -> None:
        """Count a segment, or a slice of one, that failed verification."""
        self._count(stream, quarantined_segments=1)

    def lost(self, stream: StreamId | Incarnation, offsets: int) -> None:
        """Count offsets that will never be archived, of a stream or of an incarnation that has no names yet."""
        self._count(stream, lost_offsets=offsets)

    def failed(self, err: BaseException, stream: StreamId | Incarnation | None = None) -> None:
        """Count a failure that is followed by another attempt, of a stream or of the agent as a whole."""
        with self._lock:
            vhost, name = ("", "") if stream is None else self._labels_of(stream)
            self._failures.labels(vhost, name, failure_kind(err)).inc()

    def forget(self, incarnation: Incarnation) -> None:
        """Drop the series of a stream that is gone from this node, unless another incarnation of it is here."""
        with self._lock:
            gone = {("", incarnation), self._labels.pop(incarnation, ("", incarnation))}
            self._drop(gone.difference(self._labels.values()))

    def _count(self, stream: StreamId | Incarnation, **increments: int) -> None:
        with self._lock:
            self._counters.count(self._labels_of(stream), increments)

    def _drop(self, gone: Iterable[StreamLabels]) -> None:
        for labels in gone:
            self._counters.remove(labels)
            for kind in FAILURE_KINDS:
                self._failures.remove(*labels, kind)

    def _labels_of(self, stream: StreamId | Incarnation) -> StreamLabels:
        if isinstance(stream, str):
            return "", stream
        return self._labels.setdefault(stream.incarnation, (stream.vhost, stream.name))

    def text(self, wanted: ExpositionFormat) -> bytes:
        """Write all metrics in a format."""
        with self._lock:
            families = list(self._counters.families())
            streams = () if self._status is None else self._status.streams
        # A lock of its own: what happens is counted while the text is written.
        with self._text_lock:
            families += self._gauges.families(streams, now_ms())
            return wanted.write(self._registry, self._texts.texts(families, is_openmetrics=wanted.is_openmetrics))

    def collect(self) -> Iterator[Metric]:
        """Make the gauges of the agent as a whole from the last snapshot. Used by the registry."""
        status = self.status
        if status is not None:
            yield from _of_agent(status)


def _of_agent(status: AgentStatus) -> Iterator[Metric]:
    yield InfoMetricFamily(f"{PREFIX}build", "The agent's release.", value={"version": status.version})
    unnamed = sum(stream.name is None and stream.state not in NAMES_TO_COME for stream in status.streams)
    for name, text, value in (
        ("started_timestamp_seconds", "When the agent started.", status.started_at / 1000),
        ("snapshot_timestamp_seconds", "When the gauges were taken.", status.at / 1000),
        ("streams", "Streams on this node that are archived.", len(status.streams)),
        ("unnamed_streams", "Streams whose names are not known yet; they are not archived until then.", unnamed),
        (
            "refused_streams",
            "Streams that the broker's user may not read; they are not archived.",
            status.refused_streams,
        ),
        (
            "broker_login_refused",
            "1 while the broker refuses user or password, else 0. Nothing can be archived then.",
            int(status.is_login_refused),
        ),
        (
            "problems",
            "How many things are wrong with the agent as a whole; /status has them in words.",
            len(status.problems),
        ),
        ("disk_free_bytes", "Space left on the file system of the broker's data and the pins.", status.disk_free_bytes),
        ("disk_size_bytes", "Size of that file system.", status.disk_total_bytes),
        (
            "max_lag_seconds",
            "The time within which everything is archived: the max-lag, and the quiet span; absent without a max-lag.",
            status.max_lag_s,
        ),
        (
            "recovery_log_objects",
            "Objects that this node keeps in the recovery log, absent if it writes none.",
            status.log_objects,
        ),
        (
            "recovery_log_complete_timestamp_seconds",
            "What was committed then is archived, in the recovery log, or a slice on its way; absent before the first.",
            None if status.logged_at is None else status.logged_at / 1000,
        ),
    ):
        if value is not None:
            yield GaugeMetricFamily(PREFIX + name, text, value=value)
    contact = GaugeMetricFamily(
        f"{PREFIX}last_contact_timestamp_seconds", "When a service last answered as it should.", labels=("service",)
    )
    for service, at in ((Service.AWS, status.aws_contact_at), (Service.BROKER, status.broker_contact_at)):
        if at is not None:
            contact.add_metric((service.value,), at / 1000)
    yield contact
