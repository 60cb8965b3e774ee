"""The progress of a replay whose target does not remember it: a file of one line of JSON."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from coldstream.errors import InvalidSettingError
from coldstream.plain_json import read_json
from coldstream.replay.request import ReplayRequest
from coldstream.units import Offset

_FIELD = "progress file"


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """Keeps at `path` how much of a request is at a target. Each replay has a file of its own, and one process."""

    path: Path
    request: ReplayRequest
    target: str

    def read(self) -> Offset:
        """Return the offset before which all is done. Raises InvalidSettingError for the file of another replay."""
        try:
            found = read_json(self.path.read_bytes())
            done_to = Offset(int(found.pop("done_to")))
        except FileNotFoundError:
            return self.request.start
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
            raise InvalidSettingError(_FIELD, f"{self.path} cannot be read: {err}") from err
        if found != self._subject():
            raise InvalidSettingError(_FIELD, f"{self.path} belongs to another replay: {found}")
        return max(done_to, self.request.start)

    def write(self, done_to: Offset) -> None:
        """Record that all before an offset is done. Raises InvalidSettingError if the file cannot be written."""
        # Replaced as a whole: a crash leaves the old progress or the new one, never half of a line.
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
        return {"incarnation": self.request.stream.incarnation, "from": self.request.start, "target": self.target}
