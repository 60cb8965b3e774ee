"""What is wrong with the archive, and what to do about it."""

from __future__ import annotations

from starlette.responses import Response

from coldstream.browse.health_report import HealthFinding, HealthLevel, HealthReport
from coldstream.console.page_request import PageRequest
from coldstream.console.site import Site
from coldstream.console.visitor import Visitor


def show(site: Site, asked: PageRequest) -> Response:
    """Show all findings, the worst first; of streams that the visitor may not read, none."""
    report = site.archive.health()
    findings = [one for one in report.findings if _is_shown(one, asked.visitor)]
    return site.page(
        asked,
        "health.html",
        report=report,
        findings=[one for one in findings if one.level is not HealthLevel.OK],
        fine=[one for one in findings if one.level is HealthLevel.OK],
        counts=[(level, sum(one.level is level for one in findings)) for level in HealthLevel],
        worst=_worst(report, findings),
    )


def _is_shown(finding: HealthFinding, visitor: Visitor) -> bool:
    """Whether a finding is for a visitor. One that is of no one stream may name all of them."""
    return visitor.sees_all if finding.stream is None else visitor.may_read(finding.stream.name)


def _worst(report: HealthReport, findings: list[HealthFinding]) -> HealthLevel:
    found = {one.level for one in findings}
    return next((level for level in HealthLevel if level in found), report.level if not findings else HealthLevel.OK)
