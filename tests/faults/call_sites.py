"""Where a command or function calls a service: the operation, and of S3 what kind of key it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote

from tests.faults.fault_kinds import FaultKind
from tests.faults.faulty_world import BUCKET, PREFIX
from tests.faults.http_messages import HttpRequest

_QUERIES = {"list-type", "uploads", "uploadId", "partNumber", "delete", "versions", "versioning", "tagging", "restore"}
# Below the prefix, and below the directory of a stream: `data`, `staging`; of control objects also the kind.
_OF_OBJECT = re.compile(
    rf"/{re.escape(BUCKET)}/{re.escape(PREFIX)}(?:[0-9a-f]{{8}}_[^/]+/)?([a-z]+(?:(?<=control)/[a-z]+)?)"
)


def call_site(request: HttpRequest) -> str:
    """Name what is asked, the same in every run: `Query`, `GET bucket list-type`, `PUT data partNumber uploadId`."""
    if "x-amz-target" in request.fields:
        return f"{request.operation} of an index" if request.may_be_stale else request.operation
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


@dataclass(frozen=True, slots=True)
class CallSites:
    """The call sites of a scenario without faults: of each request in turn, which kinds of fault take effect there."""

    kinds: Mapping[str, tuple[frozenset[FaultKind], ...]]

    @classmethod
    def of_requests(cls, asked: Iterable[tuple[HttpRequest, frozenset[FaultKind]]]) -> Self:
        """Sort requests by call site."""
        found: dict[str, list[frozenset[FaultKind]]] = {}
        for request, possible in asked:
            found.setdefault(call_site(request), []).append(possible)
        return cls({site: tuple(found[site]) for site in sorted(found)})

    def pairs(self) -> list[tuple[str, FaultKind]]:
        """Return each call site with each kind of fault that takes effect there, in order."""
        return [
            (site, kind) for site, all_ in self.kinds.items() for kind in FaultKind if kind in frozenset().union(*all_)
        ]

    def turns(self, site: str, kind: FaultKind) -> list[int]:
        """Return at which requests of a call site a kind takes effect, from 0 on."""
        return [nth for nth, possible in enumerate(self.kinds[site]) if kind in possible]


@dataclass
class Coverage:
    """Which kind of fault struck which call site of which scenario, and so that the answer was another."""

    struck: set[tuple[str, str, FaultKind]] = field(default_factory=set)
    sites: dict[str, CallSites] = field(default_factory=dict)

    def add(self, scenario: str, sites: CallSites, kind: FaultKind, struck: Iterable[str]) -> None:
        """Take in a run, and the call sites that its scenario has."""
        self.sites[scenario] = sites
        self.struck |= {(scenario, site, kind) for site in struck}

    def pairs(self) -> list[tuple[str, str, FaultKind]]:
        """Return call sites with the kinds that take effect there, of the scenarios that were played."""
        return [(name, *pair) for name, sites in self.sites.items() for pair in sites.pairs()]

    def missing(self) -> list[tuple[str, str, FaultKind]]:
        """Return what no run struck yet, of the scenarios that were played."""
        return [pair for pair in self.pairs() if pair not in self.struck]
