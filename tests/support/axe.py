"""axe-core, which finds what keeps people from using a page; `make axe` fetches it from npm."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tests.support.devtools import Tab
from tests.support.fixtures import do_without

SCRIPT = Path(__file__).parents[2] / ".cache/axe/node_modules/axe-core/axe.min.js"
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@cache
def script() -> str:
    """Return axe-core, or skip the test."""
    if not SCRIPT.exists():
        do_without("axe-core", "make axe, which needs npm")
    return SCRIPT.read_text()


def violations(tab: Tab) -> list[str]:
    """Return what axe-core finds in the page that a tab shows: the rule, where, and why."""
    tab.run(f"{script()}; 0")
    options = {"runOnly": {"type": "tag", "values": TAGS}}
    found = tab.run(f"axe.run(document, {json.dumps(options)}).then((found) => found.violations)")
    return [f"{one['id']}: {node['target']}: {node['failureSummary']}" for one in found for node in one["nodes"]]
