"""Where a command or function calls a service: the operation, and of S3 what kind of key it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from tests.faults.fault_kinds import FaultKind
from tests.faults.faulty_world import BUCKET, PREFIX
from tests.faults.http_messages import HttpRequest

_QUERIES = {"list-type", "uploads", "uploadId", "partNumber", "delete", "versions", "versioning", "tagging", "restore"}
_OF_OBJECT = re.compile(rf"/{re.escape(BUCKET)}/{re.escape(PREFIX)}([a-z.-]+)")


def call_site(request: HttpRequest) -> str:
    """Name what is asked, the same in every run: `Query`, `GET bucket list-type`, `PUT objects partNumber uploadId`."""
    if "x-amz-target" in request.fields:
        return request.operation
    path, _, query = request.target.partition("?")
    marks = sorted(_QUERIES & {name for name, _ in parse_qsl(query, keep_blank_values=True)})
    found = _OF_OBJECT.match(unquote(path))
    if found is not None:
        what = found[1]
    elif path.startswith(f"/{BUCKET}"):
        what = "bucket"
    else:
        what = path
    copies = ["copy"] if "x-amz-copy-source" in request.fields else []
    return " ".join((request.method, what, *copies, *marks))


@dataclass
class Coverage:
    """Which kind of fault struck which call site of which scenario."""

    struck: set[tuple[str, str, FaultKind]] = field(default_factory=set)
    sites: dict[str, frozenset[str]] = field(default_factory=dict)

    def add(self, scenario: str, sites: Iterable[str], kind: FaultKind, struck: Iterable[HttpRequest]) -> None:
        """Take in a run, and the call sites that its scenario has."""
        self.sites[scenario] = frozenset(sites)
        self.struck |= {(scenario, call_site(request), kind) for request in struck}

    def missing(self) -> list[tuple[str, str, FaultKind]]:
        """Return what no run struck yet, of the scenarios that were played."""
        return [
            (name, site, kind)
            for name, sites in self.sites.items()
            for site in sorted(sites)
            for kind in FaultKind
            if (name, site, kind) not in self.struck
        ]

    def pairs(self) -> int:
        """Count call sites by kinds, of the scenarios that were played."""
        return sum(map(len, self.sites.values())) * len(FaultKind)
