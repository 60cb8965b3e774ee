"""How far a replay is that its target does not remember: a file of one line of JSON."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from coldstream.errors import InvalidSettingError
from coldstream.replay.request import ReplayRequest
from coldstream.units import Offset

_FIELD = "progress file"


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """What of a source is at a target, by `path`; one file for each, and one replay at a time."""

    path: Path
    source: ReplayRequest
    target: str

    def read(self) -> Offset:
        """Return the offset up to which all is done. Raises InvalidSettingError for the file of another replay."""
        try:
            found = json.loads(self.path.read_bytes())
            done_to = Offset(int(found.pop("done_to")))
        except FileNotFoundError:
            return self.source.start
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
            raise InvalidSettingError(_FIELD, f"{self.path} cannot be read: {err}") from err
        if found != self._subject():
            raise InvalidSettingError(_FIELD, f"{self.path} is of another replay: {found}")
        return max(done_to, self.source.start)

    def write(self, done_to: Offset) -> None:
        """Say that all before an offset is done. Raises InvalidSettingError where the file cannot be written."""
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            with beside.open("w") as file:
                json.dump(self._subject() | {"done_to": done_to}, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as err:
            raise InvalidSettingError(_FIELD, f"{self.path} cannot be written: {err}") from err

    def _subject(self) -> dict[str, object]:
        return {"incarnation": self.source.stream.incarnation, "from": self.source.start, "target": self.target}
