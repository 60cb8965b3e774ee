"""What pages are made from: the archive, the catalogue of its streams, its jobs, its health, and brokers to ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.health_report import HealthReport
from coldstream.browse.names import StreamNames
from coldstream.browse.spans import BrokerOffsets
from coldstream.jobs.store import JobStore
from coldstream.manifest.stream import StreamId
from coldstream.store.object_ports import ObjectReads
from coldstream.store.ports import ManifestTable

BrokerProbe = Callable[[StreamId], BrokerOffsets]
"""Asks a broker what it has of a stream. It blocks for a few seconds at most, and tells of a failure in its answer."""


@dataclass(frozen=True, slots=True)
class ArchiveAccess:
    """The archive as pages see it. `probes` ask brokers, by the names that jobs know these by."""

    table: ManifestTable
    objects: ObjectReads
    names: StreamNames
    catalogue: StreamCatalogue
    jobs: JobStore
    health: Callable[[], HealthReport]
    probes: Mapping[str, BrokerProbe] = field(default_factory=lambda: MappingProxyType({}))
