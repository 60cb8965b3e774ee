"""Every command and every function is played while its stores misbehave, or here is why not."""

from __future__ import annotations

from coldstream.cli.registry import COMMANDS
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.faulty_world import ROOT

NO_STORE = {
    "inspect": "reads a file of this machine",
    "agent status": "asks an agent, by HTTP",
    "gateway status": "asks a gateway, by HTTP",
    "gateway hash-password": "asks nobody",
    "up": "starts an emulated AWS of its own; what is asked of it then are other commands and functions",
}
"""Commands that ask no store."""

ELSEWHERE = {
    "console": "its pages are those of the console function, which is played",
    "shards archive": "asks stores as the agent does (`Announcer`), which is played; tests/queues fails each request",
}
"""Commands whose requests another scenario makes, by the same code."""


def commands() -> set[str]:
    """Return the commands that can be run, with their verbs."""
    return {
        name
        for command, listed in COMMANDS.items()
        for name in (*([command] if listed.place else ()), *(f"{command} {verb}" for verb in listed.verbs))
    }


def functions() -> set[str]:
    return {f"{path.parent.name} function" for path in (ROOT / "functions").glob("*/app.py")}


def test_every_command_and_function_is_played_or_asks_no_store():
    played = frozenset().union(*(scenario.does for scenario in SCENARIOS.values()))
    there = commands() | functions()
    excused = NO_STORE.keys() | ELSEWHERE.keys()
    assert there - played == excused
    assert played <= there
    assert "hold put" in played
    assert "console function" in played
