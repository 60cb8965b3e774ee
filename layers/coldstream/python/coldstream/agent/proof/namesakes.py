"""The directories whose names are encoded alike: a proof for one of them has to rule out the others."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.proof.names import encoded_names_of, letters, letters_of, may_encode
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId


class Namesake(Protocol):
    """A directory, as far as the others see it whose names are encoded alike."""

    @property
    def stream(self) -> StreamId | None:
        """The stream; None until its names are proven."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether the broker has the directory. Raises UnavailableError if that cannot be told."""
        ...

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        """Find a chunk by its id."""
        ...


class Namesakes:
    """All directories that the agent knows, by the certain part of the names in theirs.

    `data` is the broker's directory of streams, None if it cannot be seen.
    """

    def __init__(self, data: Path | None = None) -> None:
        self._data = data
        self._known: dict[str, dict[Incarnation, Namesake]] = {}

    def join(self, incarnation: Incarnation, namesake: Namesake) -> None:
        """Add a directory."""
        self._known.setdefault(_key(incarnation), {})[incarnation] = namesake

    def leave(self, incarnation: Incarnation) -> None:
        """Remove a directory that is gone, and of which no pin is left."""
        alike = self._known.get(_key(incarnation), {})
        alike.pop(incarnation, None)
        if not alike:
            self._known.pop(_key(incarnation), None)

    def of(self, stream: StreamId) -> list[Namesake]:
        """Return the directories that may have the stream's names, but for that of its own incarnation."""
        return [
            other
            for key in letters_of(stream.vhost, stream.name)
            for incarnation, other in self._known.get(key, {}).items()
            if incarnation != stream.incarnation and _may_belong_to(incarnation, stream)
        ]

    def has_unseen(self, stream: StreamId) -> bool:
        """Tell whether the broker has a directory that may have the stream's names, and that no archiver knows yet.

        Call it in a thread, as it lists a directory. Raises OSError.
        """
        # The event loop changes `_known` while this runs in a thread: only look it up here, and never iterate over it.
        return self._data is not None and any(
            _may_belong_to(path.name, stream)
            and Incarnation(path.name) not in self._known.get(_key(path.name), {})
            and segment_files(path)
            for path in self._data.iterdir()
        )


def _key(directory: str) -> str:
    return letters(encoded_names_of(directory) or directory)


def _may_belong_to(directory: str, stream: StreamId) -> bool:
    names = encoded_names_of(directory)
    return names is not None and may_encode(names, stream.vhost, stream.name)
