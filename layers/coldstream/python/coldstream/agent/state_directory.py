"""The directory in which the agent keeps what has to outlive it.

    <path>/lock                          held by the agent that runs on the directory
           pins/<incarnation>/           segments: hard links (disk/pins.py), or files of our own (recording/spool.py);
                                         and which followed which (disk/successions.py)
           node                          this directory's name in the recovery log, made up once
           streams/<incarnation>.json    what is remembered of a stream (stream_file.py)

For the disk source it lies on the file system of the broker's data, as hard links do not lead to another one.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from coldstream.agent.stream_file import StreamFile
from coldstream.errors import InvalidSettingError
from coldstream.manifest.stream import Incarnation
from coldstream.store.parsed_keys import NODE

MAX_HOST = 40
"""Characters of a host's name in that of a node, which has 63 at most."""


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The state directory at `path`, which `lock` creates."""

    path: Path

    @property
    def lock_file(self) -> Path:
        """The file whose lock the running agent holds."""
        return self.path / "lock"

    @property
    def pins(self) -> Path:
        """The directory of the pins of all streams."""
        return self.path / "pins"

    @property
    def stream_files(self) -> Path:
        """The directory of what is remembered of each stream."""
        return self.path / "streams"

    def pins_of(self, incarnation: Incarnation) -> Path:
        """Return the directory of an incarnation's pins."""
        return self.pins / incarnation

    def stream_file(self, incarnation: Incarnation) -> StreamFile:
        """Return the file of what is remembered of an incarnation."""
        return StreamFile(self.stream_files, incarnation)

    def node(self, host: str) -> str:
        """Return the name that tells this directory's recovery log from all others, which begins with the host's.

        A directory that is lost never comes back under its name, so what its agent has left is nobody else's. Raises
        OSError.
        """
        path = self.path / "node"
        with suppress(OSError):
            text = path.read_text("ascii", errors="replace")
            if NODE.fullmatch(text):
                return text
        name = re.sub("[^A-Za-z0-9]+", "-", host).strip("-")[:MAX_HOST] or "node"
        node = f"{name}-{secrets.token_hex(8)}"
        fresh = path.with_suffix(".new")
        with fresh.open("w", encoding="ascii") as file:
            file.write(node)
            # On the disk before anything is put under the name: after a power cut it would be another's.
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        return node

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory, so that no second agent releases the pins of the first.

        The kernel lets go of the lock when the process ends, however it ends. Raises InvalidSettingError when the
        directory cannot be written to, or another agent holds it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = self.lock_file.open("w", encoding="ascii")
        except OSError as err:
            raise InvalidSettingError("--state", f"{self.path} cannot be written to: {err.strerror}") from err
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as err:
                raise InvalidSettingError("--state", f"another agent runs on {self.path}") from err
            # The file is never removed: an agent could otherwise lock the old file while another locks a new one.
            yield
