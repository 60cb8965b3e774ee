"""The directories here that are written alike: what is concluded of one of them has to leave room for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from coldstream.agent.names import written_names
from coldstream.agent.pins import segment_files
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId


class Namesake(Protocol):
    """A directory as others that are written alike see it."""

    @property
    def stream(self) -> StreamId | None:
        """The stream, None until its names are proven."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether the broker has it. Raises UnavailableError when that cannot be told."""
        ...

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        """Find a chunk of its by the id."""
        ...


class Namesakes:
    """All directories that the agent knows, by what their names say of vhost and stream.

    `data` is the broker's directory of streams, None where it cannot be seen.
    """

    def __init__(self, data: Path | None = None) -> None:
        self._data = data
        self._alike: dict[str | None, dict[Incarnation, Namesake]] = {}

    def join(self, life: Incarnation, namesake: Namesake) -> None:
        """Take a directory."""
        self._alike.setdefault(written_names(life), {})[life] = namesake

    def leave(self, life: Incarnation) -> None:
        """Leave of a directory that is gone, and of which nothing is held."""
        alike = self._alike.get(written_names(life), {})
        alike.pop(life, None)
        if not alike:
            self._alike.pop(written_names(life), None)

    def of(self, life: Incarnation) -> list[Namesake]:
        """Return the others that are written as a directory is."""
        return [other for name, other in self._alike.get(written_names(life), {}).items() if name != life]

    def has_unseen(self, life: Incarnation) -> bool:
        """Tell whether the broker has another that is written so, and that the agent has not looked at yet.

        Lists a directory: call it in a thread. Raises OSError.
        """
        names = written_names(life)
        seen = self._alike.get(names, {})
        return self._data is not None and any(
            path.name not in seen and written_names(path.name) == names and segment_files(path)
            for path in self._data.iterdir()
        )
