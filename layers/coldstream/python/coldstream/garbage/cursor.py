"""How far a pass over the bucket has come, as the table keeps it between two runs, and what the last whole pass found.

    cursor    JSON: {"version": 1, "options": {...}, "reached": key, "tally": {...}}
    last pass JSON: {"version": 1, "ended_at": ms, "left": 17, "left_bytes": 5242880, "failed": 0}

Everything up to and including the key `reached` was dealt with. A run with other options begins anew: what one was
told to keep, another may be told to delete.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from coldstream.errors import CorruptionError
from coldstream.garbage.kinds import ObjectState
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.tally import Tally
from coldstream.plain_json import read_json
from coldstream.store.ports import ManifestTable
from coldstream.units import TimestampMs

VERSION = 1

BY_SCHEDULE = "garbage, by schedule"
BY_COMMAND = "garbage, by command"
"""The names of the passes that the function makes, and of those that `coldstream garbage` makes."""


@dataclass(frozen=True, slots=True)
class LastPass:
    """What a whole pass found and left: garbage, in objects and bytes, and `failed` deletions among it."""

    ended_at: TimestampMs
    left: int
    left_bytes: int
    failed: int = 0

    @classmethod
    def of(cls, tally: Tally, ended_at: TimestampMs) -> Self:
        """Take it from what a pass counted."""
        garbage = [one for one in tally.findings() if one.state is ObjectState.GARBAGE]
        done = tally.deletions
        return cls(
            ended_at,
            sum(one.objects for one in garbage) - done.objects,
            sum(one.size_bytes for one in garbage) - done.size_bytes,
            done.failed,
        )


@dataclass(frozen=True, slots=True)
class GarbageCursor:
    """The place for the progress of one kind of run, by its name."""

    table: ManifestTable
    name: str

    def load(self, options: GarbageOptions) -> tuple[str | None, Tally]:
        """Return the key that the last run reached, None to begin anew, and what it counted. Cost: one GetItem.

        Raises CorruptionError.
        """
        content = self._content(self.name)
        if content.get("version") != VERSION or content.get("options") != _kept(options):
            return None, Tally()
        try:
            return content["reached"], Tally.of_json(content["tally"])
        except (ValueError, TypeError, KeyError) as err:
            raise CorruptionError(f"cursor {self.name}", 0, f"malformed: {err}") from err

    def save(self, options: GarbageOptions, reached: str, tally: Tally) -> None:
        """Keep how far the run has come. Cost: one PutItem."""
        content = {"version": VERSION, "options": _kept(options), "reached": reached, "tally": tally.to_json()}
        self.table.put_cursor(self.name, json.dumps(content, separators=(",", ":")).encode())

    def end(self, last: LastPass) -> None:
        """Say that the pass is complete, and what it found. Cost: one PutItem and one DeleteItem."""
        # The report first: a run that dies between the two is looked for where it stopped, and ends once more.
        content = {"version": VERSION, **asdict(last)}
        self.table.put_cursor(self._last_name, json.dumps(content, separators=(",", ":")).encode())
        self.table.delete_cursor(self.name)

    def last_pass(self) -> LastPass | None:
        """Return what the last whole pass found, None if there was none. Cost: one GetItem. Raises CorruptionError."""
        content = self._content(self._last_name)
        if content.pop("version", None) != VERSION:
            return None
        try:
            return LastPass(**content)
        except TypeError as err:
            raise CorruptionError(f"cursor {self._last_name}", 0, f"malformed: {err}") from err

    def reached(self) -> str | None:
        """Return the key that a pass under way has reached, None if none is. Cost: one GetItem.

        Raises CorruptionError.
        """
        reached = self._content(self.name).get("reached")
        return None if reached is None else str(reached)

    def _content(self, name: str) -> dict[str, Any]:
        """Return what a cursor holds, nothing if there is none."""
        data = self.table.cursor(name)
        try:
            content = {} if data is None else read_json(data)
        except ValueError as err:
            raise CorruptionError(f"cursor {name}", 0, f"malformed: {err}") from err
        if not isinstance(content, dict):
            raise CorruptionError(f"cursor {name}", 0, "no JSON object")
        return content

    @property
    def _last_name(self) -> str:
        return f"{self.name}, last pass"


def _kept(options: GarbageOptions) -> dict[str, object]:
    """Return the options that a pass must keep; how much one run looks at may change from run to run."""
    content = asdict(options)
    del content["max_objects"], content["versions"]
    return content
