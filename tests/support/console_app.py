"""The console in this process, over an archive in memory: its application, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx
from starlette.applications import Starlette

from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.health_report import HealthFinding, HealthLevel, HealthReport
from coldstream.browse.names import StreamNames
from coldstream.browse.spans import BrokerOffsets
from coldstream.console.app import make_console
from coldstream.console.archive_access import ArchiveAccess
from coldstream.console.console_options import ConsoleOptions
from coldstream.jobs.store import JobStore
from coldstream.manifest.stream import StreamId
from coldstream.operate.diagnosis import ArchivePart
from coldstream.units import TimestampMs, now_ms
from coldstream.web.access_tokens import AccessTokens
from tests.support.shown_archive import ShownArchive, shown_archive

UNLIMITED = ConsoleOptions(requests_per_s=0, version="0.1.0")


def access_of(
    archive: ShownArchive,
    *,
    now: Callable[[], TimestampMs] = now_ms,
    probes: Mapping[str, Callable[[StreamId], BrokerOffsets]] | None = None,
    findings: tuple[HealthFinding, ...] | None = None,
) -> ArchiveAccess:
    """Return what pages are made from."""
    told = some_findings(archive) if findings is None else findings
    return ArchiveAccess(
        table=archive.table,
        objects=archive.objects,
        names=StreamNames(archive.table),
        catalogue=StreamCatalogue(archive.table, now=now, refresh_s=0.001, in_background=False),
        jobs=JobStore(archive.table, now),
        health=lambda: HealthReport(now(), told, len(archive.streams), len(archive.streams)),
        probes=probes or {},
    )


def console(
    archive: ShownArchive | None = None,
    options: ConsoleOptions = UNLIMITED,
    tokens: AccessTokens | None = None,
    access: ArchiveAccess | None = None,
) -> Starlette:
    """Return the application over an archive."""
    return make_console(access or access_of(archive or shown_archive(now_ms())), options, tokens)


def browser(app: Starlette, base_url: str = "http://localhost") -> httpx.AsyncClient:
    """Return a client that sends what browsers send with forms of the same page, and keeps cookies."""
    headers = {"Origin": base_url, "Sec-Fetch-Site": "same-origin"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base_url, headers=headers)


def some_findings(archive: ShownArchive) -> tuple[HealthFinding, ...]:
    """Return findings of each level."""
    stream = next(iter(archive.streams.values()), None)
    part = next(iter(ArchivePart))
    return (
        HealthFinding(
            part,
            HealthLevel.BAD,
            "Segments in quarantine",
            "1 segment of offsets 1,400 up to 1,520 failed verification: CRC of chunk 1433",
            "Its messages are not archived. The segment is kept whole, with the reason.",
            "coldstream quarantine show orders, and then retry or release it",
            stream,
        ),
        HealthFinding(
            part,
            HealthLevel.WARN,
            "Lag of the agent at broker-2",
            "the oldest message that is not archived is 14 minutes old",
            "Uploads wait for the network, or the broker is busy.",
            "coldstream agent status shows which streams wait",
        ),
        HealthFinding(part, HealthLevel.NOT_ASKED, "Alarms", "no stack is named", "Alarms of CloudWatch are not seen."),
        HealthFinding(part, HealthLevel.OK, "Dead letters", "the queue is empty", "Every event was handled."),
    )
