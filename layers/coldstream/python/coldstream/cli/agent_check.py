"""`coldstream agent --check`: try everything that the agent needs, before it runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from typing import TYPE_CHECKING

import typer

from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, printable, write_json, write_table

if TYPE_CHECKING:
    from coldstream.agent.monitor.check import Check
    from coldstream.agent.options import AgentOptions


def check_and_show(options: AgentOptions, output: Format) -> ExitCode:
    """Run the checks, print a line for each, advise on those that failed, and return the exit code."""
    from coldstream.agent.monitor.check_suite import check_agent

    logging.getLogger("rstream").setLevel(logging.CRITICAL)
    checks = asyncio.run(check_agent(options, os.environ))
    if output is Format.JSON:
        for check in checks:
            write_json(
                {
                    "part": check.part,
                    "check": check.what,
                    "outcome": check.outcome,
                    "found": check.finding,
                    "todo": check.advice,
                }
            )
    else:
        rows = [(check.outcome.value, check.part.value, check.what, check.finding) for check in checks]
        write_table(("outcome", "part", "check", "found"), rows)
    _say(checks)
    return _exit_code(checks)


def _say(checks: list[Check]) -> None:
    from coldstream.agent.monitor.check import CheckOutcome

    for check in checks:
        if check.outcome is not CheckOutcome.OK and check.advice is not None:
            typer.echo(printable(f"{check.outcome.value}: {check.what}: {check.advice}"), err=True)
    counts = Counter(check.outcome for check in checks)
    typer.echo(", ".join(f"{counts[outcome]} {outcome.value}" for outcome in CheckOutcome), err=True)


def _exit_code(checks: list[Check]) -> ExitCode:
    from coldstream.agent.monitor.check import CheckedPart, CheckOutcome

    failed = {check.part for check in checks if check.outcome is CheckOutcome.FAILED}
    if CheckedPart.DISK in failed:
        return ExitCode.USAGE
    return ExitCode.UNAVAILABLE if failed else ExitCode.OK
