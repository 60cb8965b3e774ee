"""The directories here that are written alike: what is concluded of one of them has to leave room for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.proof.names import encoded_names_of, letters, letters_of, may_encode
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
        self._known: dict[str, dict[Incarnation, Namesake]] = {}

    def join(self, life: Incarnation, namesake: Namesake) -> None:
        """Take a directory."""
        self._known.setdefault(_key(life), {})[life] = namesake

    def leave(self, life: Incarnation) -> None:
        """Leave of a directory that is gone, and of which nothing is held."""
        alike = self._known.get(_key(life), {})
        alike.pop(life, None)
        if not alike:
            self._known.pop(_key(life), None)

    def of(self, stream: StreamId) -> list[Namesake]:
        """Return the directories, other than the stream's own incarnation, that may be written for its names."""
        return [
            other
            for key in letters_of(stream.vhost, stream.name)
            for life, other in self._known.get(key, {}).items()
            if life != stream.incarnation and _may_be(life, stream)
        ]

    def has_unseen(self, stream: StreamId) -> bool:
        """Tell whether the broker has another that may be written so, and that the agent has not looked at yet.

        Lists a directory: call it in a thread. Raises OSError.
        """
        return self._data is not None and any(
            _may_be(path.name, stream)
            and Incarnation(path.name) not in self._known.get(_key(path.name), {})
            and segment_files(path)
            for path in self._data.iterdir()
        )


def _key(directory: str) -> str:
    return letters(encoded_names_of(directory) or directory)


def _may_be(directory: str, stream: StreamId) -> bool:
    names = encoded_names_of(directory)
    return names is not None and may_encode(names, stream.vhost, stream.name)
