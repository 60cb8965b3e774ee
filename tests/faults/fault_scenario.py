"""Something to do on a small archive, and what is right about it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.fault_acts import Act, CommandAct, FunctionAct
from tests.faults.faulty_world import TABLE


@dataclass(frozen=True, slots=True)
class FaultScenario:
    """Something to do. `prepared` comes before, without faults.

    `is_exact`: what it shows is always the same. `again` tells whether it can be done again after it was done: else
    doing it again may be refused. What is archived is read from `table` afterwards. `after` comes at the end, without
    faults, and has a problem if something was lost that the archive's own stream does not show. `of` names the commands
    of which this is the part that asks stores, if the act is neither a command nor a function itself. A fault that
    lasts ends after `outage` requests, if the act waits until it ends.
    """

    name: str
    act: Act
    uploaded: int = 2
    prepared: tuple[Act, ...] = ()
    after: tuple[Act, ...] = ()
    is_exact: bool = False
    again: bool = True
    outage: int | None = None
    table: str = TABLE
    of: frozenset[str] = frozenset()

    @property
    def does(self) -> frozenset[str]:
        """The commands and functions that it runs."""
        return frozenset({self.act.name}) if isinstance(self.act, CommandAct | FunctionAct) else self.of
