"""Functions and table as template.yaml declares them, so that the measured system is the deployed one."""

from __future__ import annotations

from typing import Any

from bench.harness import ROOT, CannotMeasureError
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_template


def handler_of(directory: str) -> str:
    """Return the handler of the function whose code is in functions/`directory`."""
    for function in load_template(ROOT / "template.yaml").functions:
        if function.code == ROOT / "functions" / directory:
            return function.handler
    raise CannotMeasureError(f"template.yaml has no function of functions/{directory}")


def table_properties() -> dict[str, Any]:
    """Return CreateTable's parameters for the table."""
    return table_parameters(load_template(ROOT / "template.yaml").body["Resources"]["Table"])
